"""Random sequences of everything that a user can do with a memory, compared with the reference.

Valid input has the same result as in the reference; invalid input is refused and leaves the memory as it was, bit for
bit. SQHN_FUZZ sets the number of sequences (`make fuzz` runs thousands, in processes of their own).
"""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from numpy.typing import NDArray

from sqhn import SQHN, EmptyMemoryError, Level
from sqhn.banks.cpu import prototypes
from sqhn.level import Options
from sqhn.protocol import Recalled
from sqhn.reference import ReferenceSQHN
from tests.helpers import assert_same_ranking, assert_same_state, fingerprint, lower, set_chunk

torch: Any = pytest.importorskip("torch")

SHAPE = (4, 6)
KERNELS: list[tuple[Any, ...]] = [(None,), (2, None), ((4, 3), None), ((1, 3), (2, 1), None)]
POOLS = {
    "few": [0.0, 0.5, 1.0],
    "faint": [0.5, 0.5 + 2.0**-20, 0.5 - 2.0**-20],
    "many": list(np.linspace(0, 1, 17)),
    "tiny": [0.0, 1e-44, -3e-40, 1e-20, 1e-13],
    "huge": [1e15, -1e15, 3e14, 1.0],
    "mixed": [1e-44, 0.5, 1e15, -7.0, 0.0],
}
HALVES = {"few", "faint", "many"}  # pools that half precision can represent


def unaligned(x: NDArray[Any]) -> NDArray[Any]:
    raw = np.empty(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[:] = x
    return view


def frozen(x: NDArray[Any]) -> NDArray[Any]:
    y = x.copy()
    y.flags.writeable = False
    return y


LAYOUTS: dict[str, Any] = {
    "plain": lambda x: x,
    "fortran": np.asfortranarray,
    "reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "read-only": frozen,
    "unaligned": unaligned,
    "other bytes first": lambda x: x.astype(x.dtype.newbyteorder("S")),
    "list": lambda x: x.tolist(),
    "masked array": np.ma.array,
    "tensor": torch.from_numpy,
}
HALF_TENSORS = {"half": torch.float16, "bfloat16": torch.bfloat16}


def as_user_data(x: NDArray[np.float32], dtype: str, layout: str) -> tuple[Any, NDArray[np.float32]]:
    """Samples as a user may have them, and their values as float32."""
    if dtype in HALF_TENSORS:
        tensor = torch.from_numpy(x).to(HALF_TENSORS[dtype])
        return tensor, tensor.float().numpy()
    if dtype == "uint8":
        whole = np.clip(x * 255, 0, 255).astype(np.uint8)
        form = whole if layout in ("list", "tensor", "other bytes first") else LAYOUTS[layout](whole)
        return form, whole.astype(np.float32) / np.float32(255)
    typed = x.astype(dtype)
    if layout == "tensor" and dtype == "longdouble":
        layout = "plain"
    return LAYOUTS[layout](typed), typed.astype(np.float32)


class Machine(RuleBasedStateMachine):
    """A memory and the reference that learn the same samples."""

    @initialize(
        kernels=st.sampled_from(KERNELS),
        capacity=st.integers(1, 7),
        shared=st.integers(0, 2),
        alpha=st.sampled_from([5.0, 1e7]),
        when_full=st.sampled_from(["average", "overwrite", "oldest", "freeze"]),
        similarity=st.sampled_from(["shifted_cosine", "cosine", "euclidean"]),
        device=st.sampled_from(["cpu", "plain"]),
        small=st.sampled_from([0, 64]),
        chunk=st.integers(1, 5),
        pool=st.sampled_from(list(POOLS)),
    )
    def begin(
        self,
        kernels: tuple[Any, ...],
        capacity: int,
        shared: int,
        alpha: float,
        when_full: Any,
        similarity: Any,
        device: str,
        small: int,
        chunk: int,
        pool: str,
    ) -> None:
        *below, last = [Level(kernel, capacity + i, alpha, 1.0, when_full) for i, kernel in enumerate(kernels)]
        stops = when_full == "freeze" and shared > 0
        below = [replace(lower(one), shared=number < shared, stops=stops) for number, one in enumerate(below)]
        self.levels = [*below, last]
        self.options = Options(similarity=similarity)
        self.pool = pool
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(prototypes, "SMALL", small)
        self.device, self.chunk = device, chunk
        self.start()

    def start(self) -> None:
        self.memory = SQHN(SHAPE, self.levels, similarity=self.options.similarity, device=self.device)
        set_chunk(self.memory, self.chunk)
        self.reference = ReferenceSQHN(SHAPE, self.levels, self.options)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    def draw(self, seed: int, many: int) -> NDArray[np.float32]:
        rng = np.random.default_rng(seed)
        x: NDArray[np.float32] = rng.choice(POOLS[self.pool], (many, *SHAPE)).astype(np.float32)
        x[rng.random(many) < 0.2] = rng.choice(POOLS[self.pool])
        return x

    def form(self, x: NDArray[np.float32], dtype: str, layout: str) -> tuple[Any, NDArray[np.float32]]:
        if self.pool not in HALVES and dtype in ("float16", "half", "uint8"):
            dtype = "float32"
        if self.pool in ("tiny", "mixed") and dtype == "bfloat16":
            dtype = "float64"
        return as_user_data(x, dtype, layout)

    DTYPES = ("float16", "float32", "float64", "longdouble", "uint8", "half", "bfloat16")
    FORMS: dict[str, Any] = {  # noqa: RUF012
        "seed": st.integers(0, 2**32),
        "many": st.integers(1, 8),
        "dtype": st.sampled_from(DTYPES),
        "layout": st.sampled_from(list(LAYOUTS)),
    }

    # -- valid input --------------------------------------------------------------------------------------------

    @rule(**FORMS, single=st.booleans())
    def learn(self, seed: int, many: int, dtype: str, layout: str, single: bool) -> None:
        given, values = self.form(self.draw(seed, 1 if single else many), dtype, layout)
        before = self.memory.step
        written = self.memory.learn(given[0] if single else given)
        expected = [self.reference.learn(sample) for sample in values]
        for field, name in zip(written, ("index", "grew", "score", "step")):
            np.testing.assert_allclose(np.atleast_1d(field), [getattr(one, name) for one in expected], atol=1e-9)
        assert self.memory.step == before + len(values)
        self.assert_same()

    def mask(self, x: NDArray[np.float32], seed: int, share: float) -> NDArray[np.bool_]:
        """A mask with at least one value of every sample; of some samples, whole nodes observe nothing."""
        rng = np.random.default_rng(seed + 3)
        observed = rng.random(x.shape) < share
        observed[rng.random(len(x)) < 0.3, :2] = False
        observed[:, -1, -1] = True
        return observed

    @rule(seed=st.integers(0, 2**32), many=st.integers(1, 5), holes=st.booleans())
    def hold(self, seed: int, many: int, holes: bool) -> None:
        x = self.draw(seed, many)
        observed = self.mask(x, seed, 0.7) if holes else None
        self.memory.learn(x, hold=True, observed=observed)
        self.reference.learn_samples(x, observed)
        self.assert_same()

    @rule(
        seed=st.integers(0, 2**32),
        many=st.integers(1, 8),
        share=st.sampled_from([0.2, 0.9]),
        filler=st.sampled_from([np.nan, np.inf, 1e38]),
        masked=st.booleans(),
    )
    def learn_missing(self, seed: int, many: int, share: float, filler: float, masked: bool) -> None:
        x = self.draw(seed, many)
        observed = self.mask(x, seed, share)
        given = np.where(observed, x, np.float32(filler))
        if masked:
            written = self.memory.learn(np.ma.array(given, mask=~observed))
        else:
            written = self.memory.learn(given, observed=observed)
        expected = [self.reference.learn(sample, observed=mask) for sample, mask in zip(x, observed)]
        for field, name in zip(written, written._fields):
            np.testing.assert_allclose(field, [getattr(one, name) for one in expected], atol=1e-9)
        self.assert_same()

    @precondition(lambda self: len(self.memory) > 0)
    @rule(seed=st.integers(0, 2**32), many=st.integers(1, 8))
    def forget(self, seed: int, many: int) -> None:
        living = np.flatnonzero(self.memory.counts)
        gone = np.random.default_rng(seed).permutation(living)[:many]
        self.memory.forget(gone if seed % 2 else gone.tolist())
        for j in gone:
            self.reference.forget(j)
        before = fingerprint(self.memory)
        for wrong in (gone[0], -1, len(self.memory.counts), [gone[-1], 0]):
            with pytest.raises(IndexError):
                self.memory.forget(wrong)
        with pytest.raises(TypeError):
            self.memory.forget(0.5)  # type: ignore[arg-type]
        assert fingerprint(self.memory) == before
        self.assert_same()

    @rule(seed=st.integers(0, 2**32), many=st.integers(1, 3))
    def memorize(self, seed: int, many: int) -> None:
        x = self.draw(seed, many)
        before = fingerprint(self.memory)
        if self.reference.root.free.any():
            with pytest.raises(ValueError, match="were forgotten"):
                self.memory.memorize(x)
        elif all(
            node.grown + many * (len(level) if node.level.shared else 1) <= node.level.capacity
            for level in self.reference.levels
            for node in level
        ):
            self.memory.memorize(x)
            self.reference.memorize(x)
            self.assert_same()
        else:
            with pytest.raises(ValueError, match="has room for"):
                self.memory.memorize(x)
            assert fingerprint(self.memory) == before

    def assert_same(self) -> None:
        assert_same_state(self.memory, self.reference)

    @precondition(lambda self: len(self.memory) > 0)
    @rule(
        **FORMS,
        mask=st.sampled_from(["none", "each", "one", "masked", "nothing"]),
        inference=st.sampled_from(["paper", "exact", "feedforward"]),
        filler=st.sampled_from([np.nan, np.inf, -np.inf, 1e38]),
    )
    def recall(self, seed: int, many: int, dtype: str, layout: str, mask: str, inference: str, filler: float) -> None:
        x, before = self.draw(seed, many), fingerprint(self.memory)
        observed = np.random.default_rng(seed + 1).random(SHAPE if mask == "one" else x.shape) < 0.6
        if mask == "nothing":
            observed[:] = False
        if mask == "none":
            given, values = self.form(x, dtype, layout)
            found, each_mask = self.memory.recall(given, inference=inference), [None] * many
        else:
            each = np.broadcast_to(observed, x.shape)
            kind = dtype if dtype in ("float16", "float32", "float64") and self.pool in HALVES else "float32"
            with np.errstate(over="ignore"):
                given = np.where(each, x, np.float32(filler)).astype(kind)
            values, each_mask = np.where(each, given, x).astype(np.float32), list(each)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found = (
                    self.memory.recall(np.ma.array(given, mask=~each), inference=inference)
                    if mask == "masked"
                    else self.memory.recall(given, observed=observed, inference=inference)
                )
        for i, (sample, one) in enumerate(zip(values, each_mask)):
            self.assert_agrees(found, i, self.reference.recall(sample, one, inference))
        assert fingerprint(self.memory) == before

    @precondition(lambda self: len(self.memory) > 0)
    @rule(
        seed=st.integers(0, 2**32),
        many=st.integers(1, 3),
        k=st.integers(1, 5),
        masked=st.booleans(),
        inference=st.sampled_from(["paper", "exact", "feedforward"]),
    )
    def recall_k(self, seed: int, many: int, k: int, masked: bool, inference: str) -> None:
        x, before = self.draw(seed, many), fingerprint(self.memory)
        observed = np.random.default_rng(seed + 2).random(x.shape) < 0.9 if masked else None
        assert_same_ranking(self.memory, self.reference, x, observed, min(k, len(self.memory)), inference)
        assert fingerprint(self.memory) == before

    @staticmethod
    def assert_agrees(found: Recalled, i: int, expected: Recalled) -> None:
        np.testing.assert_array_equal(np.asarray(found.x)[i], expected.x)
        assert int(found.index[i]) == expected.index
        assert found.known is None or (np.asarray(found.known)[i] == expected.known).all()
        assert float(found.score[i]) == pytest.approx(expected.score, abs=1e-9)

    @rule(**FORMS)
    def recognize(self, seed: int, many: int, dtype: str, layout: str) -> None:
        before = fingerprint(self.memory)
        given, values = self.form(self.draw(seed, many), dtype, layout)
        judged = self.memory.recognize(given)
        for i, sample in enumerate(values):
            expected = self.reference.recognize(sample)
            assert bool(judged.old[i]) == expected.old
            assert float(judged.score[i]) == pytest.approx(expected.score, abs=1e-9)
        if len(self.memory):
            energy = self.memory.energy(given)
            assert [float(e) for e in energy] == pytest.approx([self.reference.energy(s) for s in values], abs=1e-9)
            observed = self.mask(values, seed, 0.5)
            partly = self.memory.recognize(values, observed)
            expected_of = [self.reference.recognize(*pair) for pair in zip(values, observed)]
            assert partly.old.tolist() == [one.old for one in expected_of]
            assert self.memory.energy(values, observed).tolist() == pytest.approx(
                [self.reference.energy(sample, observed=mask) for sample, mask in zip(values, observed)], abs=1e-9
            )
        else:
            with pytest.raises(EmptyMemoryError):
                self.memory.energy(given)
        assert fingerprint(self.memory) == before

    @rule(by=st.sampled_from(["file", "pickle", "copy", "deepcopy", "device"]))
    def restore(self, by: str) -> None:
        before = fingerprint(self.memory)
        if by == "file":
            with tempfile.TemporaryDirectory() as folder:
                self.memory.save(Path(folder) / "m.sqhn")
                self.memory = SQHN.load(Path(folder) / "m.sqhn", self.memory.device)
        elif by == "device":
            self.memory = self.memory.to("cpu" if self.memory.device == "plain" else "plain")
        elif by == "pickle":
            self.memory = pickle.loads(pickle.dumps(self.memory))
        else:
            self.memory = getattr(copy, by)(self.memory)
        set_chunk(self.memory, self.chunk)
        assert fingerprint(self.memory) == before

    @rule(rho=st.one_of(st.none(), st.floats(0, 2)))
    def set_rho(self, rho: float | None) -> None:
        self.memory.rho = rho
        one_level = 0.99999 if len(self.levels) == 1 else 0.999
        assert self.memory.rho == self.memory.options.rho == rho or (rho is None and self.memory.rho == one_level)
        self.reference.rho = self.memory.rho

    @rule()
    def reset(self) -> None:
        self.memory.reset()
        rho = self.reference.rho
        self.reference = ReferenceSQHN(SHAPE, self.levels, self.options)
        self.reference.rho = rho
        self.assert_same()

    # -- invalid input -------------------------------------------------------------------------------------------

    @rule(
        seed=st.integers(0, 2**32),
        wrong=st.sampled_from(
            ["nan", "inf", "-inf", "half inf", "half nan", "bfloat16 inf", "beyond", "int64", "bool", "complex",
             "object", "text", "shape", "scalar", "empty", "masked", "second argument", "None", "ragged"]
        ),
        verb=st.sampled_from(["learn", "hold", "memorize", "recognize", "energy", "recall"]),
    )  # fmt: skip
    def refused(self, seed: int, wrong: str, verb: str) -> None:
        x: Any = self.draw(seed, 3)
        kinds: dict[str, Any] = {
            "half inf": lambda: x.clip(-1, 1).astype(np.float16),
            "half nan": lambda: x.clip(-1, 1).astype(np.float16),
            "bfloat16 inf": lambda: torch.from_numpy(x.clip(-1, 1)).bfloat16(),
            "int64": lambda: np.zeros(x.shape, np.int64),
            "bool": lambda: np.zeros(x.shape, bool),
            "complex": lambda: x.astype(np.complex128),
            "object": lambda: x.astype(object),
            "text": lambda: x.astype(str),
            "shape": lambda: x[:, :3],
            "scalar": lambda: np.float32(0.5),
            "empty": lambda: x[:0],
            "masked": lambda: np.ma.array(x, mask=np.arange(6) == seed % 6 + 0 * x),
            "None": lambda: None,
            "ragged": lambda: [x[0].tolist(), [[1.0]]],
        }
        bad = kinds.get(wrong, lambda: x)()
        spot = (seed % 3, seed % 4, seed % 6)
        value = {"nan": np.nan, "half nan": np.nan, "-inf": -np.inf, "beyond": 1.1e15}.get(wrong, np.inf)
        if wrong in ("nan", "inf", "-inf", "beyond", "half inf", "half nan", "bfloat16 inf"):
            bad[spot] = value
        if verb != "memorize" and wrong == "masked":
            return  # a missing value, which these verbs take
        before = fingerprint(self.memory)
        call: Any = getattr(self.memory, "learn" if verb == "hold" else verb)
        more = {"hold": True} if verb == "hold" else {}
        also = [7] if wrong == "second argument" else []
        with pytest.raises((TypeError, ValueError)):
            call(bad, *also, **more)
        assert fingerprint(self.memory) == before

    @rule(name=st.sampled_from(["input_shape", "levels", "options", "capacity", "step", "device", "banks"]))
    def read_only(self, name: str) -> None:
        with pytest.raises(AttributeError):
            setattr(self.memory, name, 1)

    @rule(rho=st.sampled_from([-1.0, np.nan, np.inf, "high", True]))
    def bad_rho(self, rho: Any) -> None:
        before = self.memory.rho
        with pytest.raises(ValueError, match="rho must be"):
            self.memory.rho = rho
        assert self.memory.rho == before


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=int(os.environ.get("SQHN_FUZZ", "60")),
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
