"""The banks in plain NumPy: without Numba, beside the compiled banks, and what their candidates rest on.

Against the reference: tests/conformance and tests/properties, wherever the device is "plain".
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.banks import bounds
from sqhn.banks.plain import evidence, prototypes
from sqhn.banks.plain.candidates import Candidates
from sqhn.model.inference import INFERENCES
from sqhn.reference import ReferenceSQHN
from tests.by_evidence import assert_as_the_reference
from tests.conformance.test_stories import SHAPES, SIMILARITIES, masks, same_in_all, samples, story, tell, tree
from tests.helpers import assert_same_answers, assert_same_state, fingerprint, noisy, scaled_copies, set_chunk

WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import copy, pickle
import numpy as np
import sqhn
import sqhn.banks.plain.device
from sqhn import SQHN, Level
from sqhn.model.inference import INFERENCES

x = np.random.default_rng(0).random((12, 8, 8), np.float32)
half = np.broadcast_to(np.arange(8) < 4, x.shape)
sqhn.set_num_threads(sqhn.get_num_threads())
for number, levels in enumerate(([Level(capacity=9)], [Level(4, 9), Level(capacity=9)])):
    for similarity in ("shifted_cosine", "euclidean"):
        folder = f"{sys.argv[1]}/{number} {similarity}"
        memory = SQHN((8, 8), levels, similarity=similarity, device="plain", folder=folder)
        memory.learn(x[:4])
        memory.learn(x[4:8], observed=half[4:8], value=list("abcd"))
        memory.learn(x[8:10], hold=True)
        memory.forget(1)
        for rule in INFERENCES:
            memory.recall(x, inference=rule)
            memory.recall(x, half, inference=rule, k=2)
            memory.energy(x, half, inference=rule)
        memory.recognize(x, half)
        memory.calibrate(new=x, error=0.5, inference="evidence")
        memory.recognize(x, inference="evidence")
        memory.save(folder + ".sqhn")
        kept = SQHN.load(folder, device="plain", read_only=True)
        others = SQHN.load(folder + ".sqhn", device="plain"), copy.copy(memory), pickle.loads(pickle.dumps(memory))
        for other in (kept, *others):
            assert other.device == "plain"
            assert (other.recall(x).x == memory.recall(x).x).all()
assert not [name for name in sys.modules if name.startswith(("numba", "llvmlite")) and sys.modules[name]]
"""


def test_it_needs_no_numba(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_NUMBA, str(tmp_path)], check=True)


# -- beside the compiled banks -----------------------------------------------------------------------------------------


def both(name: str, similarity: Any, when_full: Any) -> tuple[SQHN, SQHN]:
    levels = tree(name, 12, when_full)
    plain, compiled = (SQHN(SHAPES[name][0], levels, similarity=similarity, device=one) for one in ("plain", "cpu"))
    return plain, compiled


def tell_both(plain: SQHN, compiled: SQHN, rng: np.random.Generator, calls: int) -> None:
    """Learn and forget the same in both, and compare all decisions."""
    for _ in range(calls):
        x = samples(plain.input_shape, 20, rng)
        observed = masks(x, 0.8, rng) if rng.random() < 0.5 else None
        hold = bool(rng.random() < 0.2)
        one, other = (memory.learn(x, observed=observed, hold=hold) for memory in (plain, compiled))
        for field in ("index", "grew", "step", "replaced"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        np.testing.assert_allclose(one.score, other.score, atol=1e-9)
        gone = np.flatnonzero(plain.counts)[:2]
        assert plain.forget(gone) == compiled.forget(gone)


def assert_same(plain: SQHN, compiled: SQHN, x: NDArray[np.float32]) -> None:
    """The saved arrays, which are equal but for the rounding of mean matches, and all answers."""
    for one, other in zip(plain.banks, compiled.banks):
        mine, theirs = (bank.neurons.state() | bank.state() for bank in (one, other))
        assert {name: array.dtype for name, array in mine.items()} == {k: array.dtype for k, array in theirs.items()}
        np.testing.assert_allclose(mine.pop("mu", 1.0), theirs.pop("mu", 1.0), atol=1e-9)
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    for rule in INFERENCES:
        found, expected = (memory.recall(x, k=3, inference=rule) for memory in (plain, compiled))
        np.testing.assert_array_equal(found.x, expected.x)
        np.testing.assert_array_equal(found.index, expected.index)
        np.testing.assert_allclose(found.score, expected.score, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("when_full", ["average", "oldest"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_memory_moves_to_compiled_banks_and_back(name: str, similarity: Any, when_full: str) -> None:
    rng = np.random.default_rng(0)
    plain, compiled = both(name, similarity, when_full)
    tell_both(plain, compiled, rng, 3)
    assert_same(plain, compiled, samples(plain.input_shape, 4, rng))
    moved = plain.to("cpu")
    assert (plain.device, moved.device) == ("plain", "cpu")
    assert fingerprint(plain) == fingerprint(moved) == fingerprint(moved.to("plain"))
    back = moved.to("plain")
    tell_both(back, compiled, copy.deepcopy(rng), 2)
    tell_both(plain, moved.to("cpu"), copy.deepcopy(rng), 2)
    assert fingerprint(back) == fingerprint(plain)


@pytest.mark.parametrize("name", ["large", "three levels"])
def test_files_and_copies(name: str, tmp_path: Path) -> None:
    memory, reference, rng = story(name, "shifted_cosine", "average", "plain")
    tell(memory, reference, rng, 4)
    memory.save(tmp_path / "m")
    files = SQHN.load(tmp_path / "m", device="plain"), SQHN.load(tmp_path / "m")
    for other in (*files, copy.copy(memory), copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        assert fingerprint(other) == fingerprint(memory)
    same_in_all(files[0], reference, rng)
    SQHN(memory.input_shape, memory.levels, device="plain", folder=tmp_path / "kept").learn(
        np.zeros(memory.input_shape)
    )
    assert SQHN.load(tmp_path / "kept", device="plain").step == 1


def test_samples_may_be_tensors() -> None:
    torch = pytest.importorskip("torch")
    memory = SQHN((4, 4), capacity=3, device="plain")
    x = torch.rand(3, 4, 4)
    assert isinstance(memory.learn(x).index, torch.Tensor)
    assert torch.equal(memory.recall(x).x, x)


# -- candidates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("seed", range(4))
def test_products_may_be_as_wrong_as_they_admit(seed: int, similarity: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions rest on bounds: products that are off by a known share of the lengths change nothing."""
    rng, wrong = np.random.default_rng(seed), 0.2
    honest = Candidates.products

    def sloppy(self: Candidates, part: slice, look: Any, half: Any) -> Any:
        found = honest(self, part, look, half)
        square = 2 * half[:, None]
        share = np.sqrt(self.square[:, part, None] * square) + square if self.bank.euclidean else 1.0
        return (found + wrong * share * rng.choice([-1, 1], found.shape)).astype(np.float32)

    exact = {name: getattr(bounds, name) for name in ("product", "masked_product")}
    for name, bound in exact.items():
        monkeypatch.setattr(bounds, name, lambda size, bound=bound: bound(size) + wrong)
    monkeypatch.setattr(Candidates, "products", sloppy)
    memory = SQHN((8, 6), capacity=12, similarity=similarity, device="plain")
    reference = ReferenceSQHN((8, 6), memory.levels, memory.options)
    stream = noisy(rng.random((20, 8, 6))[rng.integers(20, size=80)])
    assert list(memory.learn(stream).index) == [reference.learn(x).index for x in stream]
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, stream[:10])


@pytest.mark.parametrize("bound", ["product", "masked_product"])
def test_without_a_bound_float32_decides(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of near ties mean something: with a bound of zero they would fail."""
    monkeypatch.setattr(bounds, bound, lambda _: 0.0)
    stored = scaled_copies((12,), 0)
    memory = SQHN((12,), capacity=100, device="plain")
    memory.memorize(stored)
    reference = ReferenceSQHN.of(memory)
    asked = stored + np.random.default_rng(1).normal(0, 1e-4, stored.shape).astype(np.float32)
    observed = np.random.default_rng(2).random(asked.shape) < (0.6 if bound == "masked_product" else 2)
    right = [reference.recall(x, mask).index for x, mask in zip(asked, observed)]
    assert np.mean(memory.recall(asked, observed if bound == "masked_product" else None).index != right) > 0.1


@pytest.mark.parametrize("name", SHAPES)
def test_a_little_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, similarities and evidence of parts of the samples and neurons, as with more than fit into memory."""
    for module, limit in ((prototypes, "MOST_PRODUCTS"), (prototypes, "MOST_VALUES"), (evidence, "MOST_SCORES")):
        monkeypatch.setattr(module, limit, 100)
    memory, reference, rng = story(name, "euclidean", "average", "plain")
    set_chunk(memory, 256)
    tell(memory, reference, rng, 5)
    same_in_all(memory, reference, rng)
    assert_as_the_reference(memory, samples(memory.input_shape, 5, rng))


def test_memory_use_follows_what_was_stored() -> None:
    """Not children times values times neurons: an entry for each child of a sample."""
    memory = SQHN((64, 2), [Level((1, 2), 200), Level(capacity=200)], device="plain")
    memory.learn(np.random.default_rng(0).random((200, 64, 2), np.float32))
    counts: Any = memory.banks[1]
    assert counts.used <= 200 * 64
    assert counts.table.nbytes <= 4 * 4 * 2 * 200 * 64
