"""A conformance suite: tests that a memory, of this package or your own, behaves as `sqhn.protocol` describes.

`check_memory` runs all checks, as scikit-learn's `check_estimator` does for estimators. `checks` lists them, for
`pytest.mark.parametrize`. Only NumPy is needed.

A memory may name checks that it cannot pass, each with a reason: in an attribute `cannot`, a mapping of names to
reasons, or in the argument of that name, which takes precedence. A named check that passes counts as a failure, so that
excuses do not become outdated. Checks of optional methods (`reset`, `len`, pickling, deep copies) are excused if the
method is missing. Four checks are abilities, on which the other checks depend:

    "single samples"   a sample can be given without a leading axis; without it, checks give batches of one sample
    "batches"          many samples can be given at once; without it, checks give them one by one
    "recognize"        the memory has this verb; without it, no check calls it
    "missing values"   `recall` takes `observed`; without it, checks give complete samples only

>>> from sqhn.paper.baselines import NearestNeighbor
>>> report = check_memory(lambda: NearestNeighbor((4, 4), capacity=20), (4, 4))
>>> len(report.passed) == len(checks()), report.excused
(True, {})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqhn.protocol import Memory
from sqhn.testing.checks import CHECKS, Check
from sqhn.testing.subject import CAPACITY

__all__ = ["CAPACITY", "Check", "Report", "check_memory", "checks"]


class Report(NamedTuple):
    """The names of the checks that passed, and those that were excused with their reasons."""

    passed: tuple[str, ...]
    excused: dict[str, str]


def checks() -> tuple[Check, ...]:
    """All checks, in order; `__name__` is the name of a check and `__doc__` its requirement."""
    return tuple(CHECKS)


def check_memory(make: Callable[[], Memory], shape: Sequence[int], cannot: Mapping[str, str] | None = None) -> Report:
    """Run all checks; if any fail, raise an AssertionError that lists them with calls, expected and actual answers.

    make: returns a new, empty memory, always the same, for samples of that shape and with room for `CAPACITY` of them.
    shape: the shape of one sample, of at least 8 values.
    cannot: names of checks that the memory cannot pass, with reasons, in addition to its own attribute `cannot`.
    """
    reasons: dict[str, str | None] = {}
    failed: list[AssertionError] = []
    for check in CHECKS:
        try:
            reasons[check.__name__] = check(make, shape, cannot)
        except AssertionError as error:
            failed.append(error)
    if failed:
        lines = "".join(f"\n- {error}" for error in failed)
        raise AssertionError(f"{len(failed)} of {len(CHECKS)} checks failed:{lines}") from failed[0]
    excused = {name: reason for name, reason in reasons.items() if reason is not None}
    return Report(tuple(name for name in reasons if name not in excused), excused)
