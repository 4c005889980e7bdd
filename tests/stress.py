"""Many threads and one memory: a program of its own, since what it looks for may end the process.

`python -m tests.stress TREE DEVICE SECONDS`. Threads learn, with holes or without, hold, recall, recognize, forget,
save, copy and reset as fast as they can. In the end every sample that was learned is replayed, in the order of the
steps that `learn` told, through the reference: it must give the same memory, and every file and copy must be the state
after some step.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, EmptyMemoryError, Level
from sqhn.inputs import as_numpy
from sqhn.reference import ReferenceSQHN
from tests.helpers import assert_same_state, model_of, set_chunk

SHAPE = (8, 12)
TREES: dict[str, list[Level]] = {
    "one": [Level(capacity=30)],
    "large": [Level(capacity=400)],
    "tree": [Level(4, 12), Level(capacity=25)],
    "overwrite": [Level(2, 15), Level((2, 3), 12), Level(capacity=20, when_full="overwrite")],
}
EARLY, LATE = 550, 600  # steps by which a call shows on which side of a reset it was


class Learned(NamedTuple):
    began: float
    ended: float
    step: int
    samples: NDArray[np.float32]  # of one thing, if more than one
    seen: NDArray[np.bool_] | None


class Forgotten(NamedTuple):
    began: float
    ended: float
    step: int
    which: list[int]


class Kept(NamedTuple):
    began: float
    ended: float
    where: Path | SQHN


class Stress:
    def __init__(self, tree: str, device: str, seconds: float, folder: Path) -> None:
        self.levels, self.device, self.folder = TREES[tree], device, folder
        self.memory = SQHN(SHAPE, self.levels, device=device)
        set_chunk(self.memory, 5)
        self.seconds = seconds
        self.learned: list[Learned] = []
        self.forgotten: list[Forgotten] = []  # by one thread, so in this order
        self.kept: list[Kept] = []
        self.resets: list[tuple[float, float]] = []
        self.failures: list[str] = []
        self.calls: dict[str, int] = {}
        centres = np.random.default_rng(0).random((60, *SHAPE))
        self.centres = centres.astype(np.float32)

    def samples(self, rng: np.random.Generator, many: int) -> NDArray[np.float32]:
        """Some that were met before, some nearly so, some flat."""
        x = self.centres[rng.integers(len(self.centres), size=many)]
        x[rng.random(many) < 0.5] += rng.normal(0, 0.1, SHAPE).astype(np.float32)
        x[rng.random(many) < 0.05] = 0.5
        return x

    def there(self, x: NDArray[np.float32]) -> Any:
        """Samples where the memory is; on a GPU as tensors, made on the stream of the thread."""
        if self.device == "cpu":
            return x
        import torch

        return torch.from_numpy(x).to(model_of(self.memory).tree.device.place)

    def learn(self, rng: np.random.Generator) -> None:
        x = self.samples(rng, int(rng.choice([1, 1, 3, 17])))
        hold = bool(rng.random() < 0.2)
        seen = self.holes(x, rng) if rng.random() < 0.3 else None
        began = time.monotonic()
        step = as_numpy(self.memory.learn(self.there(x), hold=hold, observed=seen).step)
        ended = time.monotonic()
        assert list(np.diff(step)) == [1] * (len(x) - 1), "the samples of a call follow each other"
        groups = [x] if hold else list(x[:, None])
        parts = [None] * len(groups) if seen is None else [seen] if hold else list(seen[:, None])
        self.learned += [Learned(began, ended, int(s), *group) for s, *group in zip(step, groups, parts)]

    @staticmethod
    def holes(x: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.bool_]:
        """What was seen of samples: of some, nothing of a half."""
        seen = rng.random(x.shape) < 0.8
        seen[rng.random(len(x)) < 0.3, :4] = False
        seen[:, -1, -1] = True
        return seen

    def recall(self, rng: np.random.Generator) -> None:
        x = self.samples(rng, 1)
        some = rng.random(SHAPE) < 0.7
        some[0, 0] = True
        batch = self.there(np.repeat(x, 260, axis=0))
        for inference, observed in (("paper", None), ("paper", some), ("exact", None)):
            found = self.memory.recall(batch[: 20 if inference == "exact" else None], observed, inference=inference)
            assert len(np.unique(as_numpy(found.index))) == 1, "one call, one state"
            pictures = as_numpy(found.x)
            assert (pictures == pictures[0]).all()
            assert np.isfinite(pictures).all()

    def recognize(self, rng: np.random.Generator) -> None:
        judged = self.memory.recognize(self.there(np.repeat(self.samples(rng, 1), 260, axis=0)))
        assert len({*zip(judged.score.tolist(), judged.threshold.tolist())}) == 1, "one call, one state"
        self.memory.energy(self.samples(rng, 3))
        repr(self.memory)

    def forget(self, rng: np.random.Generator) -> None:
        time.sleep(float(rng.uniform(0, 0.05)))
        living = np.flatnonzero(self.memory.counts)
        index = rng.permutation(living)[: int(rng.choice([1, 4]))].tolist()
        began = time.monotonic()
        with suppress(IndexError):  # someone has just reset it
            step = self.memory.forget(index)
            self.forgotten.append(Forgotten(began, time.monotonic(), step, index))

    def save(self, rng: np.random.Generator) -> None:
        path = self.folder / f"{rng.integers(2**62)}.sqhn"
        began = time.monotonic()
        self.memory.save(path)
        self.kept.append(Kept(began, time.monotonic(), path))

    def copy(self, rng: np.random.Generator) -> None:
        began = time.monotonic()
        other = copy.copy(self.memory)
        self.kept.append(Kept(began, time.monotonic(), other))
        time.sleep(0.02)

    def reset(self, rng: np.random.Generator) -> None:
        time.sleep(float(rng.uniform(0.05, 0.3)))
        if self.memory.step > LATE:
            began = time.monotonic()
            self.memory.reset()
            self.resets.append((began, time.monotonic()))

    def work(self, name: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        verb: Callable[[np.random.Generator], None] = getattr(self, name)
        try:
            if self.device != "cpu":
                import torch

                torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]
            while time.monotonic() < self.until and not self.failures:
                try:
                    verb(rng)
                    self.calls[name] = self.calls.get(name, 0) + 1
                except EmptyMemoryError:  # someone has just reset it
                    pass
        except BaseException:
            self.failures.append(f"{name}: {traceback.format_exc()}")

    def epoch(self, began: float, ended: float, step: int) -> int:
        """After how many resets a call had its turn: told by its time, or where they overlap by its step."""
        return sum(stop < began or (start < ended and step < EARLY) for start, stop in self.resets)

    def run(self) -> None:
        warm = np.random.default_rng(9)
        for verb in (self.learn, self.recall, self.recognize):  # compile
            verb(warm)
        self.memory.reset()
        self.learned.clear()
        self.until = time.monotonic() + self.seconds
        verbs = ("learn", "learn", "learn", "recall", "recall", "recognize", "save", "copy", "reset", "forget")
        threads = [threading.Thread(target=self.work, args=(verb, i)) for i, verb in enumerate(verbs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise SystemExit("\n".join(self.failures))

    def check(self) -> None:
        """Replay everything."""
        epochs: list[dict[int, Learned]] = [{} for _ in range(len(self.resets) + 1)]
        for call in self.learned:
            epoch = epochs[self.epoch(call.began, call.ended, call.step)]
            assert call.step not in epoch, "two samples with one step"
            epoch[call.step] = call
        gone: list[dict[int, list[list[int]]]] = [{} for _ in epochs]
        for one in self.forgotten:
            gone[self.epoch(one.began, one.ended, one.step)].setdefault(one.step, []).append(one.which)
        kept: list[dict[int, list[SQHN]]] = [{} for _ in epochs]
        for state in self.kept:
            memory = SQHN.load(state.where, device=self.device) if isinstance(state.where, Path) else state.where
            kept[self.epoch(state.began, state.ended, memory.step)].setdefault(memory.step, []).append(memory)
        kept[-1].setdefault(self.memory.step, []).append(self.memory)
        states = 0
        for epoch, forgotten, memories in zip(epochs, gone, kept):
            reference = ReferenceSQHN(SHAPE, self.levels)
            step = 0
            while True:
                here = memories.pop(step, [])
                states += len(here)
                for index in forgotten.pop(step, []):
                    here = [memory for memory in here if not same(memory, reference)]
                    for j in index:
                        reference.forget(j)
                for memory in here:
                    assert_same_state(memory, reference)
                if step + 1 not in epoch:
                    break
                call = epoch.pop(step + 1)
                reference.learn_samples(call.samples, call.seen)
                step += len(call.samples)
            assert not epoch, "steps that nobody took between"
            assert not forgotten, f"forgotten after steps that never were: {list(forgotten)} of {step}"
            assert not memories, f"states that never were: {list(memories)} of {step}"
        print(f"{sum(self.calls.values()):,} calls {self.calls}, {len(self.resets)} resets, {states} states compared")


def same(memory: SQHN, reference: ReferenceSQHN) -> bool:
    """Whether a memory is in this state; if not, it may be in the next."""
    try:
        assert_same_state(memory, reference)
    except AssertionError:
        return False
    return True


def main(tree: str, device: str, seconds: float) -> None:
    sys.setswitchinterval(1e-4)  # let threads take turns often
    with tempfile.TemporaryDirectory() as folder:
        stress = Stress(tree, device, seconds, Path(folder))
        stress.run()
        stress.check()


if __name__ == "__main__":
    arguments: list[Any] = sys.argv[1:]
    main(arguments[0], arguments[1], float(arguments[2]))
