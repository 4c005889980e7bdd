"""Invalid input is an error that names the value and the valid ones, and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level, inputs, set_num_threads
from sqhn.model.inference import by_name
from tests.helpers import fingerprint, model_of

RNG = np.random.default_rng(0)
GOOD = RNG.random((5, 4, 6))


def spoiled(value: float) -> Any:
    x = GOOD.copy()
    x[2, 1, 3] = value
    return x


BAD_SAMPLES: dict[str, tuple[Any, type[Exception], str]] = {
    "wrong shape": (np.zeros((3, 4, 5)), ValueError, r"\(4, 6\).*\(n, 4, 6\).*got shape \(3, 4, 5\)"),
    "too few axes": (np.zeros(6), ValueError, r"got shape \(6,\)"),
    "too many axes": (np.zeros((2, 2, 4, 6)), ValueError, r"got shape \(2, 2, 4, 6\)"),
    "scalar": (0.5, ValueError, r"got shape \(\)"),
    "empty batch": (np.zeros((0, 4, 6)), ValueError, r"empty.*\(0, 4, 6\)"),
    "int": (np.zeros((4, 6), int), TypeError, r"dtype int64.*\(4, 6\).*x.astype\(np.float32\)"),
    "bool": (np.zeros((4, 6), bool), TypeError, r"dtype bool.*x.astype\(np.float32\)"),
    "complex": (np.zeros((4, 6), complex), TypeError, "dtype complex128"),
    "text": ("image", TypeError, "dtype"),
    "object": (None, TypeError, "dtype object"),
    "nan": (
        spoiled(np.nan),
        ValueError,
        r"\(2, 1, 3\) of an array of shape \(5, 4, 6\) is nan: not finite .*observed=",
    ),
    "infinity": (spoiled(-np.inf), ValueError, r"\(2, 1, 3\).*-inf: not finite"),
    "enormous": (spoiled(1e30), ValueError, r"\(2, 1, 3\).*1e\+30: beyond"),
    "nan in one sample": (spoiled(np.nan)[2], ValueError, r"at \(1, 3\) of an array of shape \(4, 6\)"),
}


@pytest.mark.parametrize("name", BAD_SAMPLES)
@pytest.mark.parametrize("tree", [None, [Level((2, 2), 3), Level(None, 3)]])
def test_bad_samples(name: str, tree: list[Level] | None) -> None:
    x, error, message = BAD_SAMPLES[name]
    memory = SQHN((4, 6), tree, capacity=None if tree else 3)
    memory.learn(GOOD)
    before = fingerprint(memory)
    for verb in (memory.learn, memory.recall, memory.recognize, memory.energy):
        with pytest.raises(error, match=message):
            verb(x)
    with pytest.raises(error, match=message):
        memory.learn(x, hold=True)
    assert fingerprint(memory) == before


@pytest.mark.parametrize(
    ("observed", "error", "message"),
    [
        (np.ones((4, 5), bool), ValueError, r"shape of x, \(5, 4, 6\), or broadcast to it; got \(4, 5\)"),
        (np.ones((2, 4, 6), bool), ValueError, r"got \(2, 4, 6\)"),
        (np.ones((4, 6)), TypeError, "boolean.*float64"),
        (np.ones((4, 6), int), TypeError, "boolean.*int64"),
    ],
)
def test_bad_masks(observed: Any, error: type[Exception], message: str) -> None:
    memory = SQHN((4, 6), capacity=3)
    memory.learn(GOOD)
    before = fingerprint(memory)
    with pytest.raises(error, match=message):
        memory.recall(GOOD, observed)
    assert fingerprint(memory) == before


@pytest.mark.parametrize("shape", [(6,), (1, 6), (4, 1), (5, 1, 1), (5, 4, 6), ()])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    memory = SQHN((4, 6), capacity=5)
    mask: Any = np.random.default_rng(0).random(shape) < 0.7
    mask = mask | ~mask.any(axis=-1, keepdims=True) if shape else np.True_
    memory.learn(GOOD, observed=mask)
    other = SQHN((4, 6), capacity=5)
    other.learn(GOOD, observed=np.broadcast_to(mask, GOOD.shape))
    assert fingerprint(memory) == fingerprint(other)
    found, same = memory.recall(GOOD, mask), memory.recall(GOOD, np.broadcast_to(mask, GOOD.shape))
    np.testing.assert_array_equal(found.x, same.x)


def test_only_observed_values_are_checked() -> None:
    memory = SQHN((4, 6), capacity=3)
    memory.learn(GOOD)
    bad = spoiled(np.nan)
    memory.recall(bad, ~np.isnan(bad))
    with pytest.raises(ValueError, match="nan"):
        memory.recall(bad, np.ones_like(bad, bool))


HALVES = ("float16", "torch half", "torch bfloat16")


def halves(x: Any, kind: str) -> Any:
    if kind == "float16":
        return x.astype(np.float16)
    torch = pytest.importorskip("torch")
    return torch.from_numpy(x).to(torch.float16 if kind == "torch half" else torch.bfloat16)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_half_precision_values_that_are_not_finite(kind: str, value: float) -> None:
    """Half precision cannot represent the largest valid value, so values are compared as float32."""
    memory = SQHN((8, 8), capacity=10)
    x = halves(np.random.default_rng(0).random((12, 8, 8)), kind)
    memory.learn(x[:5])
    before = fingerprint(memory)
    x[7, 2, 3] = value
    for verb in (memory.learn, memory.recall, memory.recognize):
        with pytest.raises(
            ValueError, match=r"the value at \(7, 2, 3\) of an array of shape \(12, 8, 8\) is .*not finite"
        ):
            verb(x)
    assert fingerprint(memory) == before
    seen = np.ones((12, 8, 8), bool)
    seen[7, 2, 3] = False
    found = memory.recall(x, seen)
    assert np.isfinite(np.asarray(found.score)).all()
    assert int(np.asarray(found.index).max()) < 5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "strided"])
def test_the_largest_valid_value(dtype: type[np.floating[Any]], step: int) -> None:
    edge = dtype(inputs.LARGEST)
    for largest in (edge, -edge):
        x = np.full((3, 8), largest)[:, ::step]
        assert inputs.as_samples(x, x.shape[1:])[0] is x
    most = np.finfo(dtype).max
    for value in (np.nextafter(edge, most), np.nextafter(-edge, -most), most, -most, np.inf, -np.inf, np.nan):
        x = np.zeros((3, 8), dtype)[:, ::step]
        x[1, 2] = value
        with pytest.raises(ValueError, match=r"the value at \(1, 2\) "):
            inputs.as_samples(x, x.shape[1:])


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.filterwarnings("error")
def test_half_precision_is_read_as_float32(kind: str) -> None:
    x = halves(np.random.default_rng(0).random((12, 8, 8)), kind)
    plain = x.astype(np.float32) if kind == "float16" else x.float().numpy()
    one, other = SQHN((8, 8), capacity=10), SQHN((8, 8), capacity=10)
    one.learn(x)
    other.learn(plain)
    assert fingerprint(one) == fingerprint(other)


class TestMaskedArrays:
    def test_masked_values_are_missing(self) -> None:
        memory = SQHN((4, 6), capacity=5)
        memory.learn(GOOD)
        hidden = np.random.default_rng(1).random(GOOD.shape) < 0.5
        query = np.ma.array(np.where(hidden, np.nan, GOOD), mask=hidden)
        for masked, observed in ((query, ~hidden), (query[2], ~hidden[2])):
            found, expected = memory.recall(masked), memory.recall(np.nan_to_num(np.asarray(masked)), observed)
            np.testing.assert_array_equal(found.x, expected.x)
        both = memory.recall(query, np.arange(6) > 1 + 0 * GOOD)
        expected = memory.recall(GOOD, ~hidden & (np.arange(6) > 1))
        np.testing.assert_array_equal(both.x, expected.x)
        np.testing.assert_array_equal(both.score, expected.score)

    def test_every_verb_with_a_mask_takes_masked_arrays(self) -> None:
        hidden = np.random.default_rng(1).random(GOOD.shape) < 0.3
        masked = np.ma.array(np.where(hidden, np.nan, GOOD), mask=hidden)
        one, other = SQHN((4, 6), capacity=5), SQHN((4, 6), capacity=5)
        for got, wanted in zip(one.learn(masked), other.learn(GOOD, observed=~hidden)):
            np.testing.assert_array_equal(got, wanted)
        assert fingerprint(one) == fingerprint(other)
        np.testing.assert_array_equal(one.recognize(masked)[:3], one.recognize(GOOD, ~hidden)[:3])
        np.testing.assert_array_equal(one.energy(masked), one.energy(GOOD, ~hidden))

    def test_some_verbs_need_complete_samples(self) -> None:
        memory = SQHN((4, 6), [Level(2, 5), Level(capacity=5)])
        memory.learn(np.ma.array(GOOD))  # nothing is masked
        before = fingerprint(memory)
        masked = np.ma.array(GOOD, mask=spoiled(-1) < 0)
        for verb in (memory.memorize, memory.pretrain):
            with pytest.raises(ValueError, match=r"the value at \(2, 1, 3\) of a masked array of shape \(5, 4, 6\)"):
                verb(masked)
        with pytest.raises(TypeError, match="observed must be a plain boolean array"):
            memory.recall(GOOD, np.ma.array(GOOD > 0.5))
        assert fingerprint(memory) == before


def test_recall_without_observed_values_warns() -> None:
    memory = SQHN((4, 6), capacity=5)
    memory.learn(GOOD)
    observed = np.ones(GOOD.shape, bool)
    observed[[1, 4]] = False
    with pytest.warns(UserWarning, match=r"2 of 5 samples have no observed value \(the first is sample 1\)"):
        found = memory.recall(GOOD, observed)
    assert list(found.score[[1, 4]]) == [0, 0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_values_that_change_after_the_check_do_no_harm() -> None:
    """Another thread may write to an array meanwhile, but no index leaves its range."""
    for shape in ((8, 8), (10, 10)):
        for levels in ([Level(capacity=4)], [Level(2, 4), Level(capacity=4, when_full="overwrite")]):
            memory = SQHN(shape, levels)
            x = np.random.default_rng(0).random((12, *shape)).astype(np.float32)
            memory.learn(x)
            for value in (np.nan, np.inf, -np.inf):
                bad = x.copy()
                bad[3:9] = value
                tree = model_of(memory).tree
                for learned in (tree.learn(bad, None)[-1], tree.hold(x, None)):
                    assert 0 <= learned.k.min() <= learned.k.max() < 4
                _, index, _ = tree.recall(bad, None, by_name("paper"))
                assert 0 <= index.min() <= index.max() < 4


def test_hold_needs_a_batch() -> None:
    memory = SQHN((4, 6), capacity=3)
    with pytest.raises(ValueError, match=r"\(n, 4, 6\)"):
        memory.learn(GOOD[0], hold=True)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "capacity must be given"),
        ({"capacity": 0}, ValueError, "capacity.*got 0"),
        ({"capacity": 2.5}, ValueError, "capacity.*got 2.5"),
        ({"capacity": 2**31}, ValueError, "capacity.*from 1 to 2,147,483,647; got 2147483648"),
        ({"capacity": 2**63}, ValueError, "capacity.*from 1 to 2,147,483,647"),
        ({"capacity": True}, ValueError, "capacity.*got True"),
        ({"alpha": 0}, ValueError, "alpha.*above 0; got 0"),
        ({"alpha": -1.0}, ValueError, "alpha.*got -1.0"),
        ({"alpha": float("nan")}, ValueError, "alpha.*got nan"),
        ({"alpha": "much"}, ValueError, "alpha.*got 'much'"),
        ({"alpha": 10**400}, ValueError, "alpha.*got 10000"),
        ({"gamma": 0.0}, ValueError, "gamma.*got 0.0"),
        ({"gamma": float("inf")}, ValueError, "gamma.*finite"),
        ({"kernel": 0}, ValueError, "kernel.*got 0"),
        ({"kernel": (2, 0)}, ValueError, r"kernel.*got \(2, 0\)"),
        ({"kernel": ()}, ValueError, r"kernel.*got \(\)"),
        ({"kernel": 2.0}, ValueError, "kernel.*got 2.0"),
        ({"when_full": "forget"}, ValueError, "'average', 'overwrite', 'oldest', 'freeze'; got 'forget'"),
        ({"when_full": 3}, ValueError, "when_full.*got 3"),
    ],
)
def test_bad_levels(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Level(**({"capacity": 3} | arguments if arguments else {}))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"similarity": "euclid"}, ValueError, "'shifted_cosine', 'cosine', 'euclidean'; got 'euclid'"),
        ({"propagation": "softmax"}, ValueError, "'argmax', 'max'; got 'softmax'"),
        ({"mu": "median"}, ValueError, "'mean', 'pseudocount'; got 'median'"),
        ({"norm": 2}, ValueError, "'all', 'heard'; got 2"),
        ({"blend": 1.5}, ValueError, "blend.*0 to 1; got 1.5"),
        ({"rho": -1}, ValueError, "rho.*got -1"),
    ],
)
def test_bad_options(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SQHN((4, 6), capacity=3, **arguments)


@pytest.mark.parametrize(
    ("shape", "levels", "message"),
    [
        (
            (28, 28),
            [Level(5, 3), Level(None, 3)],
            r"level 1: kernel \(5, 5\).*axis 0 has length 28.*\[1, 2, 4, 7, 14, 28\]",
        ),
        ((32, 32), [Level(4, 3), Level(3, 3), Level(None, 3)], r"level 2: kernel \(3, 3\).*\(8, 8\).*not 3"),
        ((32, 32), [Level(4, 3), Level(4, 3)], r"level 2 has 4 nodes.*must have one.*\(8, 8\)"),
        ((32, 32), [Level(None, 3), Level(None, 3)], None),
        (
            (200, 6),
            [Level(20, 3), Level(None, 3)],
            r"kernel \(20, 20\).*not 20; kernel=\(20,\) cuts the first axis alone",
        ),
        ((32,), [Level((4, 4), 3), Level(None, 3)], r"level 1: kernel \(4, 4\) has more axes than the shape \(32,\)"),
    ],
)
def test_kernels_that_do_not_fit(shape: tuple[int, ...], levels: list[Level], message: str | None) -> None:
    with pytest.raises(ValueError, match=message or "level 1 of 2 has no kernel"):
        SQHN(shape, levels)


@pytest.mark.parametrize(
    ("shape", "arguments", "error", "message"),
    [
        ((), {"capacity": 3}, TypeError, "input_shape"),
        ("28", {"capacity": 3}, TypeError, "input_shape.*'28'"),
        ((28, 0), {"capacity": 3}, ValueError, r"input_shape.*\(28, 0\)"),
        ((28, 2.0), {"capacity": 3}, ValueError, "input_shape"),
        ((28, 28), {}, ValueError, "either capacity=N.*or a list of Levels"),
        ((28, 28), {"levels": [Level(capacity=3)], "capacity": 3}, ValueError, "not both"),
        ((28, 28), {"levels": []}, TypeError, "at least one Level"),
        ((28, 28), {"levels": Level(capacity=3)}, TypeError, "list of at least one Level"),
        ((28, 28), {"levels": [3]}, TypeError, "entry 1 is 3"),
        ((28, 28), {"levels": 1000}, TypeError, "for one level of 1000 neurons give capacity=1000"),
    ],
)
def test_bad_networks(shape: Any, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SQHN(shape, **arguments)


def test_memorize_needs_a_batch_that_fits() -> None:
    memory = SQHN((4, 6), [Level((2, 2), 4), Level(None, 9)])
    memory.memorize(GOOD[:3])
    before = fingerprint(memory)
    with pytest.raises(ValueError, match=r"level 1 has room for 1 more neurons; got 5 samples"):
        memory.memorize(GOOD)
    with pytest.raises(ValueError, match=r"\(n, 4, 6\)"):
        memory.memorize(GOOD[0])
    assert fingerprint(memory) == before


def test_an_unknown_inference_lists_the_known_ones() -> None:
    memory = SQHN((4, 6), capacity=3)
    memory.learn(GOOD)
    with pytest.raises(TypeError, match=r"'paper', 'feedforward', 'exact', 'evidence', or an object .*; int lacks"):
        memory.recall(GOOD, inference=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'paper', 'feedforward', 'exact', 'evidence'; got 'magic'"):
        memory.recall(GOOD, inference="magic")


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_bad_numbers_of_threads(n: Any) -> None:
    with pytest.raises(ValueError, match="threads"):
        set_num_threads(n)


@pytest.mark.parametrize(
    ("single", "fields", "error", "message"),
    [
        (False, (np.zeros((3, 2)), [1, 2, 3]), TypeError, r"one entry per sample; got \[1, 2, 3\], a list"),
        (False, (np.zeros((3, 2)), 7), TypeError, "got 7, a int"),
        (True, (np.zeros((1, 2)), np.float64(0.5)), TypeError, "a float64"),
        (False, (np.zeros((3, 2)), np.zeros(2)), ValueError, r"one per sample; got the shapes \(3, 2\), \(2,\)"),
        (True, (np.zeros((2, 2)), np.zeros(2)), ValueError, r"for the single sample; got the shapes \(2, 2\), \(2,\)"),
    ],
)
def test_fields_that_make_no_answer(single: bool, fields: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        inputs.as_answers(single, *fields)
