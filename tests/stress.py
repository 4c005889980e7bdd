"""Many threads share one memory. A program of its own, because the errors that it looks for may end the process.

`python -m tests.stress TREE DEVICE SECONDS`; with the device "moving", the memory moves between compiled kernels and
plain NumPy again and again. Threads learn, hold, recall, recognize, forget, save, copy and reset as fast as they can,
with and without missing values. Then the reference learns the same samples in the order of the steps that `learn`
returned: it must give the same memory, and every file and copy must be a state in between.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, EmptyMemoryError, Level
from sqhn.banks.devices import device_of
from sqhn.inputs import as_numpy
from sqhn.model.model import Model
from sqhn.reference import ReferenceSQHN
from sqhn.storage import files
from sqhn.storage.changes import Forget, Hold, Learn, Reset, SetRho
from tests.helpers import assert_same_state, model_of, set_chunk

SHAPE = (8, 12)
TREES: dict[str, list[Level]] = {
    "one": [Level(capacity=30)],
    "large": [Level(capacity=400)],
    "tree": [Level(4, 12), Level(capacity=25)],
    "overwrite": [Level(2, 15), Level((2, 3), 12), Level(capacity=20, when_full="overwrite")],
}
THREADS = ("learn", "learn", "learn", "recall", "recall", "recognize", "save", "copy", "reset", "forget")
CALLS, RESETS, STATES = 5, 2, 20  # a run goes on until it has done this much
STEPS = 400  # samples to learn before the next reset, so that neurons are averaged and replaced

Group = tuple[NDArray[np.float32], NDArray[np.bool_] | None]
"""Samples of one thing, mostly one sample, and which of their values were observed."""


class Stress:
    """A memory, and everything that threads do with it.

    cuts: the resets and forgets, in order; whatever is recorded with a number happened after that many of them.
    """

    def __init__(self, tree: str, device: str, seconds: float, folder: Path) -> None:
        self.levels, self.seconds, self.folder = TREES[tree], seconds, folder
        self.threads = (*THREADS, "move") if device == "moving" else THREADS
        self.device = "cpu" if device == "moving" else device
        self.memory = SQHN(SHAPE, self.levels, device=self.device)
        set_chunk(self.memory, 5)
        self.here = threading.local()  # cuts: their number at the last change or copy that this thread made
        self.clear()
        self.failures: list[str] = []
        self.centres = np.random.default_rng(0).random((60, *SHAPE)).astype(np.float32)
        for owner, name in ((files, "encode"), *((change, "apply") for change in (Learn, Hold, Forget, Reset))):
            setattr(owner, name, self.noting(getattr(owner, name), owner in (Forget, Reset)))
        if device == "moving":
            SetRho.apply = lambda change, model: self.moved(model)  # type: ignore[assignment, method-assign]

    def clear(self) -> None:
        self.learned: list[tuple[int, int, Group]] = []  # with their steps
        self.forgotten: list[tuple[int, int]] = []  # steps
        self.kept: list[tuple[int, Path | SQHN]] = []
        self.cuts: list[Forget | Reset] = []
        self.calls = dict.fromkeys(self.threads, 0)

    def noting(self, action: Callable[..., Any], cuts: bool) -> Callable[..., Any]:
        """A function that is called inside the memory's lock, where the number of cuts is certain."""

        def noted(*args: Any) -> Any:
            self.here.cuts = len(self.cuts)
            answer = action(*args)
            if cuts:
                self.cuts.append(args[0])
            return answer

        return noted

    # -- the threads ---------------------------------------------------------------------------------------------

    def samples(self, rng: np.random.Generator, count: int) -> NDArray[np.float32]:
        """Repeated samples, some with noise, some flat."""
        x = self.centres[rng.integers(len(self.centres), size=count)]
        x[rng.random(count) < 0.5] += rng.normal(0, 0.1, SHAPE).astype(np.float32)
        x[rng.random(count) < 0.05] = 0.5
        return x

    def on_device(self, x: NDArray[np.float32]) -> Any:
        """Samples where the memory is; on a GPU they are tensors, made on the stream of the thread."""
        if not self.device.startswith("cuda"):
            return x
        import torch

        return torch.from_numpy(x).to(model_of(self.memory).tree.device.place)

    def learn(self, rng: np.random.Generator) -> None:
        x = self.samples(rng, int(rng.choice([1, 1, 3, 17])))
        hold = bool(rng.random() < 0.2)
        observed = self.mask(x, rng) if rng.random() < 0.3 else None
        steps = as_numpy(self.memory.learn(self.on_device(x), hold=hold, observed=observed).step)
        assert list(np.diff(steps)) == [1] * (len(x) - 1), "the samples of a call follow each other"
        groups: list[Group] = [(x, observed)]
        if not hold:
            groups = [(x[i : i + 1], None if observed is None else observed[i : i + 1]) for i in range(len(x))]
        self.learned += [(self.here.cuts, int(step), group) for step, group in zip(steps, groups)]

    @staticmethod
    def mask(x: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.bool_]:
        """A mask; of some samples a whole half is missing."""
        observed = rng.random(x.shape) < 0.8
        observed[rng.random(len(x)) < 0.3, :4] = False
        observed[:, -1, -1] = True
        return observed

    def recall(self, rng: np.random.Generator) -> None:
        x = self.samples(rng, 1)
        some = rng.random(SHAPE) < 0.7
        some[0, 0] = True
        batch = self.on_device(np.repeat(x, 260, axis=0))
        for inference, observed in (("paper", None), ("paper", some), ("exact", None)):
            found = self.memory.recall(batch[: 20 if inference == "exact" else None], observed, inference=inference)
            assert len(np.unique(as_numpy(found.index))) == 1, "one call, one state"
            recalled = as_numpy(found.x)
            assert (recalled == recalled[0]).all()
            assert np.isfinite(recalled).all()

    def recognize(self, rng: np.random.Generator) -> None:
        judged = self.memory.recognize(self.on_device(np.repeat(self.samples(rng, 1), 260, axis=0)))
        assert len({*zip(judged.score.tolist(), judged.threshold.tolist())}) == 1, "one call, one state"
        self.memory.energy(self.samples(rng, 3))
        repr(self.memory)

    def forget(self, rng: np.random.Generator) -> None:
        time.sleep(float(rng.uniform(0, 0.05)))
        living = np.flatnonzero(self.memory.counts)
        index = rng.permutation(living)[: int(rng.choice([1, 4]))].tolist()
        with suppress(IndexError):  # another thread has just reset the memory
            step = self.memory.forget(index)
            self.forgotten.append((self.here.cuts, step))

    def save(self, rng: np.random.Generator) -> None:
        path = self.folder / f"{rng.integers(2**62)}.sqhn"
        self.memory.save(path)
        self.kept.append((self.here.cuts, path))

    def copy(self, rng: np.random.Generator) -> None:
        other = copy.copy(self.memory)
        self.kept.append((self.here.cuts, other))
        time.sleep(0.02)

    def reset(self, rng: np.random.Generator) -> None:
        time.sleep(float(rng.uniform(0.05, 0.3)))
        if self.memory.step > STEPS:
            self.memory.reset()

    def move(self, rng: np.random.Generator) -> None:
        time.sleep(float(rng.uniform(0, 0.1)))
        self.memory.rho = None  # calls `moved`

    @staticmethod
    def moved(model: Model) -> None:
        tree = model.tree
        model.tree = tree.on(device_of("plain" if tree.device.name == "cpu" else "cpu"))
        model.tree.chunk = tree.chunk

    def work(self, name: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            if self.device.startswith("cuda"):
                import torch

                torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]
            while not self.failures and (time.monotonic() < self.until or not self.enough()):
                with suppress(EmptyMemoryError):  # another thread has just reset the memory
                    getattr(self, name)(rng)
                    self.calls[name] += 1
        except BaseException:  # noqa: BLE001  # a failure of any kind is the result
            self.failures.append(f"{name}: {traceback.format_exc()}")

    def resets(self) -> int:
        return sum(isinstance(cut, Reset) for cut in self.cuts)

    def enough(self) -> bool:
        return min(self.calls.values()) >= CALLS and self.resets() >= RESETS and len(self.kept) >= STATES

    def run(self) -> None:
        rng = np.random.default_rng(9)
        for verb in [self.learn] * 40 + [self.recall, self.recognize, self.forget, self.save, self.copy]:
            verb(rng)  # compiles everything
        self.memory.reset()
        self.clear()
        self.until = time.monotonic() + self.seconds
        threads = [threading.Thread(target=self.work, args=(verb, i)) for i, verb in enumerate(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise SystemExit("\n".join(self.failures))

    # -- the replay ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Replay everything in the reference, and compare all states."""
        learned: list[dict[int, Group]] = [{} for _ in range(len(self.cuts) + 1)]
        for number, step, group in self.learned:
            assert step not in learned[number], f"two samples have step {step}"
            learned[number][step] = group
        states: list[dict[int, list[SQHN]]] = [{} for _ in learned]
        for number, one in (*self.kept, (len(self.cuts), self.memory)):
            memory = SQHN.load(one, device=self.device) if isinstance(one, Path) else one
            states[number].setdefault(memory.step, []).append(memory)
        forgotten, step = dict(self.forgotten), 0
        reference = ReferenceSQHN(SHAPE, self.levels)
        for number, (groups, memories) in enumerate(zip(learned, states)):
            while True:
                for memory in memories.pop(step, []):
                    assert_same_state(memory, reference)
                if step + 1 not in groups:
                    break
                samples, observed = groups.pop(step + 1)
                reference.learn_samples(samples, observed)
                step += len(samples)
            assert not groups, f"after step {step}, {step + 1} is missing; there are {sorted(groups)}"
            assert not memories, f"states that never were, at steps {sorted(memories)} of {step}"
            for cut in self.cuts[number : number + 1]:
                if isinstance(cut, Reset):
                    reference, step = ReferenceSQHN(SHAPE, self.levels), 0
                else:
                    assert forgotten.pop(number) == step
                    for j in cut.index:
                        reference.forget(j)
        assert not forgotten
        calls, compared = sum(self.calls.values()), len(self.kept) + 1
        print(f"{calls:,} calls {self.calls}, {self.resets()} resets, {compared} states compared")


def main(tree: str, device: str, seconds: float) -> None:
    sys.setswitchinterval(1e-4)  # switch threads often
    with tempfile.TemporaryDirectory() as folder:
        stress = Stress(tree, device, seconds, Path(folder))
        stress.run()
        stress.check()


if __name__ == "__main__":
    arguments: list[Any] = sys.argv[1:]
    main(arguments[0], arguments[1], float(arguments[2]))
