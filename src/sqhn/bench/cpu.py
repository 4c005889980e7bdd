"""Benchmarks on a CPU: one level, a tree of three, and the first steps of a user."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.bench.latency import single_calls
from sqhn.data import digits, random_crops
from sqhn.data.corruptions import white_noise
from sqhn.level import Level
from sqhn.memory import SQHN
from sqhn.reference import ReferenceSQHN

Result = dict[str, Any]
COLOR = (32, 32, 3)
ONE_LEVEL = Level(capacity=1000)
PRODUCT_CHUNK = 256  # samples in one of the bare products


def tree(capacity: int) -> tuple[Level, ...]:
    """Three levels (2, 4, 4)."""
    return Level(kernel=2, capacity=capacity), Level(kernel=4, capacity=capacity), Level(capacity=capacity)


TREE = tree(600)


def images(count: int) -> NDArray[np.float32]:
    """Crops of photographs, `(count, 32, 32, 3)` in [0, 1]."""
    return random_crops(count).astype(np.float32) / np.float32(255)


def noisy(x: NDArray[np.float32], sigma: float = 0.2) -> NDArray[np.float32]:
    """Images with Gaussian noise, clipped to [0, 1]."""
    return white_noise(x, sigma, np.random.default_rng(1))[0]


def fastest(*calls: Callable[[], object], rounds: int = 5, wait: Callable[[], object] = lambda: None) -> list[float]:
    """The shortest time of each call. The calls take turns; each turn is one warm-up and three timed runs.

    wait: returns when the work of a call is done.
    """
    best = [np.inf] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            call()
            for _ in range(3):
                wait()
                start = time.perf_counter()
                call()
                wait()
                best[i] = min(best[i], time.perf_counter() - start)
    return best


def described(about: str, run: Callable[..., Result], *args: Any, **settings: Any) -> Callable[[], Result]:
    """A case with a description of its own, and these arguments."""
    case = partial(run, *args, **settings)
    case.__doc__ = about
    return case


def judged(result: Result, **floor: float) -> Result:
    """A result with the floor it must meet: times relative to a comparison at most, everything else at least."""
    met = (
        result[name] <= limit if name.startswith("time_") else result[name] >= limit for name, limit in floor.items()
    )
    return result | {"floor": floor, "met": all(met)}


def limited(result: Result, worst: float | None, unit: str, limit: float) -> Result:
    """A result whose worst value must not be above a limit; None: it was not measured."""
    return result | {"floor": {f"at_most_{unit}": limit}, "met": None if worst is None else worst <= limit}


def learn_one_level() -> Result:
    """One level, 3,072 inputs, 1,000 neurons, 4,000 images: four times over capacity."""
    x = images(4000)
    flat = x.reshape(len(x), -1)
    W = flat[:1000].copy()

    def numpy_loop() -> None:
        for sample in flat:
            (W @ sample).argmax()

    def bare_products() -> None:
        for start in range(0, len(flat), PRODUCT_CHUNK):
            y = flat[start : start + PRODUCT_CHUNK]
            y @ W.T
            y @ y.T

    own, loop, products = fastest(lambda: SQHN(COLOR, capacity=1000).learn(x), numpy_loop, bare_products)
    result = {"images_per_s": len(x) / own, "times_numpy_loop": loop / own, "time_over_bare_products": own / products}
    return judged(result, times_numpy_loop=5, time_over_bare_products=1.5)


def _against_reference(
    rate: float,
    x: NDArray[np.float32],
    steps: tuple[int, ...],
    verb: Callable[[ReferenceSQHN, Any], object],
    **floor: float,
) -> Result:
    """Samples per second, and those of the reference model, timed at some steps of the stream."""
    seconds, memory = 0.0, SQHN(COLOR, TREE)
    for step in steps:
        memory.learn(x[memory.step : step])
        reference = ReferenceSQHN.of(memory)
        start = time.perf_counter()
        for sample in x[step : step + 2]:
            verb(reference, sample)
        seconds += time.perf_counter() - start
    slow = 2 * len(steps) / seconds
    result = {"images_per_s": rate, "reference_images_per_s": slow, "times_reference": rate / slow}
    return judged(result, times_reference=300, **floor)


def learn_three_levels() -> Result:
    """Three levels (2, 4, 4), 600 neurons per node, 4,000 images; the reference is timed at points of the stream."""
    x = images(4000)
    (own,) = fastest(lambda: SQHN(COLOR, TREE).learn(x), rounds=3)
    return _against_reference(len(x) / own, x, (250, 750, 2000, 3500), ReferenceSQHN.learn, images_per_s=1500)


def recall_three_levels() -> Result:
    """Recall of 1,024 noisy images from the tree of learn-3."""
    x = images(4000)
    memory = SQHN(COLOR, TREE)
    memory.learn(x)
    damaged = noisy(x[:1024])
    (own,) = fastest(lambda: memory.recall(damaged), rounds=3)
    return _against_reference(len(damaged) / own, x, (3990,), ReferenceSQHN.recall)


def recall_one_level(k: int | None = None) -> Result:
    """Recall of batches of 256 noisy images, 3,072 inputs, 1,000 neurons, against FAISS flat search.

    FAISS returns indices alone, or the vectors too, as recall does.
    """
    x = images(1000)
    memory = SQHN(COLOR, capacity=1000)
    memory.learn(x)
    damaged = noisy(x[:256])
    try:
        import faiss
    except ImportError:
        (own,) = fastest(lambda: memory.recall(damaged, k=k))
        floor = {"times_faiss_with_vectors": 0.9}
        return {"images_per_s": len(damaged) / own, "times_faiss": None, "floor": floor, "met": None}
    unit = memory.banks[0].state()["prototypes"] - np.float32(0.5)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    queries = np.ascontiguousarray((damaged - 0.5).reshape(len(damaged), -1))
    own, numbers, vectors = fastest(
        lambda: memory.recall(damaged, k=k),
        lambda: index.search(queries, k or 1),
        lambda: index.search_and_reconstruct(queries, k or 1),
        rounds=20,
    )
    found = memory.recall(damaged, k=k or 1).index
    result = {
        "images_per_s": len(damaged) / own,
        "times_faiss": numbers / own,
        "times_faiss_with_vectors": vectors / own,
        "same_answers": float((found == index.search(queries, k or 1)[1]).mean()),
    }
    return judged(result, times_faiss_with_vectors=0.9)


def recall_by_evidence(*levels: Level) -> Result:
    """Recall of 128 noisy images by evidence, against the paper's rule."""
    x = images(1000)
    memory, paper_tree = SQHN(COLOR, levels), SQHN(COLOR, tree(1000))
    memory.learn(x)
    paper_tree.learn(x)
    damaged = noisy(x[:128])
    W, flat = x.reshape(1000, -1).T.copy(), damaged.reshape(128, -1)
    evidence, paper, in_tree, product = fastest(
        lambda: memory.recall(damaged, inference="evidence"),
        lambda: memory.recall(damaged),
        lambda: paper_tree.recall(damaged),
        lambda: flat @ W,
    )
    result = {
        "images_per_s": len(damaged) / evidence,
        "time_over_paper_tree": evidence / in_tree,
        "time_over_paper": evidence / paper,
        "time_over_bare_product": evidence / product,
    }
    return judged(result, time_over_paper_tree=4)


def shared_level() -> Result:
    """Three levels (2, 4, 4), 256 shared neurons at level 1, 1,000 images, against 1,000 neurons at each node."""
    x = images(1000)
    damaged = noisy(x[:64])
    levels = (Level(kernel=2, capacity=256, shared=True), *tree(1000)[1:])
    memory, unshared = SQHN(COLOR, levels), SQHN(COLOR, tree(1000))
    memory.learn(x)
    unshared.learn(x)
    learned, evidence, in_unshared = fastest(
        lambda: SQHN(COLOR, levels).learn(x),
        lambda: memory.recall(damaged, inference="evidence"),
        lambda: unshared.recall(damaged, inference="evidence"),
        rounds=3,
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "memory"
        memory.save(path)
        of_file = path.stat().st_size / len(memory)
    result = {
        "images_per_s": len(x) / learned,
        "recalled_by_evidence_per_s": len(damaged) / evidence,
        "time_over_unshared_evidence": evidence / in_unshared,
        "bytes_per_image": memory.nbytes / len(memory),
        "bytes_per_image_over_unshared": memory.nbytes / unshared.nbytes,
        "bytes_per_image_in_file": of_file,
    }
    return judged(result, images_per_s=3000, time_over_unshared_evidence=2)


def one_at_a_time() -> Result:
    """`learn(x)` and `recall(x)` of single samples, 784 inputs, 1,000 neurons, full."""
    x = digits()[0][:2000].astype(np.float32) / np.float32(255)
    memory = SQHN((28, 28), capacity=1000)
    memory.learn(x)
    W = x[:1000].reshape(1000, -1).copy()
    samples, flat = list(x[:500]), list(x[:500].reshape(500, -1))
    learn, recall, bare = (
        seconds / len(samples) * 1e6
        for seconds in fastest(
            lambda: [memory.learn(s) for s in samples],
            lambda: [memory.recall(s) for s in samples],
            lambda: [W @ s for s in flat],
        )
    )
    result = {"learn_us": learn, "recall_us": recall, "bare_product_us": bare}
    return limited(result, max(learn, recall), "us", 2 * bare + 60)


_RESIDENT = """
import sqhn
def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
before = resident()
import numpy as np
rng = np.random.default_rng(0)
levels = [sqhn.Level(kernel=2, capacity=1000), sqhn.Level(kernel=4, capacity=1000), sqhn.Level(capacity=1000)]
memory = sqhn.SQHN((32, 32, 3), levels)
for _ in range(20):
    memory.learn(rng.random((100, 32, 32, 3), np.float32))
print(resident() - before)
"""

_FIRST_USE = """
import numpy as np, sqhn
levels = [sqhn.Level(kernel=2, capacity=100), sqhn.Level(kernel=4, capacity=100), sqhn.Level(capacity=100)]
sqhn.SQHN((32, 32, 3), levels).learn(np.zeros((32, 32, 3)))
"""


def _in_a_new_process(program: str) -> tuple[str, float]:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout, time.perf_counter() - start


def resident_memory() -> Result:
    """Resident memory of three levels, capacity 1,000, after 2,000 images, above that of importing sqhn."""
    linux = sys.platform.startswith("linux")
    megabytes = float(_in_a_new_process(_RESIDENT)[0]) if linux else None
    return limited({"megabytes": megabytes}, megabytes, "megabytes", 200)


def first_use() -> Result:
    """From the start of a process to its first learned image, with code that was compiled before."""
    seconds = min([_in_a_new_process(_FIRST_USE)[1] for _ in range(3)][1:])
    return limited({"seconds": seconds}, seconds, "seconds", 2)


CASES: dict[str, Callable[[], Result]] = {
    "learn-1": learn_one_level,
    "learn-3": learn_three_levels,
    "recall-3": recall_three_levels,
    "recall-1": recall_one_level,
    "recall-10": described("Recall as in recall-1, of the ten best neurons.", recall_one_level, k=10),
    "evidence-1": described(
        "Recall of 128 noisy images by evidence, 3,072 inputs, 1,000 neurons, against the paper's rule.",
        recall_by_evidence,
        ONE_LEVEL,
    ),
    "evidence-3": described(
        "Recall as in evidence-1, with three levels (2, 4, 4), 1,000 neurons per node.", recall_by_evidence, *tree(1000)
    ),
    "shared": shared_level,
    "single": one_at_a_time,
    "latency": single_calls,
    "memory": resident_memory,
    "first-use": first_use,
}
