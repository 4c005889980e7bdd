"""Speed on a GPU, compared with the bare matrix products of the same shapes in the same run.

Images are on the device before the clock starts; it stops when the device has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from sqhn.banks.cuda.arrays import full_precision
from sqhn.banks.cuda.gpu import SAMPLES_PER_CHUNK
from sqhn.bench.cpu import COLOR, ONE_LEVEL, TREE, Result, described, fastest, images, judged, limited, tree
from sqhn.level import Level
from sqhn.memory import SQHN

MANY = 20_000
TWO_LEVELS = Level(kernel=4, capacity=600), Level(capacity=600)


def crops(count: int) -> Tensor:
    """Crops of photographs on the device."""
    return torch.from_numpy(images(count)).cuda()


def noisy(x: Tensor, sigma: float = 0.2) -> Tensor:
    """Images with Gaussian noise, clipped to [0, 1]."""
    return (x + sigma * torch.randn_like(x)).clamp(0, 1)


timed = partial(fastest, wait=torch.cuda.synchronize)


def products(y: Tensor, neurons: int, among: bool) -> Callable[[], None]:
    """The bare float32 products of samples with neurons, and among themselves, a chunk at a time."""
    flat = y.reshape(len(y), -1)
    W = torch.rand(neurons, flat.shape[1], device=y.device)

    def run() -> None:
        with full_precision():
            for chunk in torch.split(flat, SAMPLES_PER_CHUNK):
                chunk @ W.T
                if among:
                    chunk @ chunk.T

    return run


def learn(floor: float, *levels: Level) -> Result:
    """How fast a new memory learns 20,000 images."""
    x = crops(MANY)
    (own,) = timed(lambda: SQHN(COLOR, levels, device="cuda").learn(x))
    return judged({"images_per_s": len(x) / own}, images_per_s=floor)


def learn_100000() -> Result:
    """One level, 3,072 inputs, 100,000 neurons, all in use; 4,096 more images."""
    x = crops(MANY)
    memory = SQHN(COLOR, capacity=100_000, device="cuda")
    for seed in range(5):  # as many different images: the same ones, each with its own noise
        memory.memorize(noisy(x, 0.05) if seed else x)
    new = torch.from_numpy(images(MANY + 4096)[MANY:]).cuda()
    own, bare = timed(lambda: memory.learn(new), products(new, 100_000, among=True))
    return judged({"images_per_s": len(new) / own, "of_bare_products": bare / own}, of_bare_products=0.5)


def recall(count: int, *levels: Level, **floor: float) -> Result:
    """How fast a memory recalls batches of 1,024 noisy images, and products with one level of as many neurons."""
    x = crops(count)
    memory = SQHN(COLOR, levels, device="cuda")
    memory.learn(x)
    damaged = noisy(x[:1024])
    own, bare = timed(lambda: memory.recall(damaged), products(damaged, levels[-1].capacity, among=False))
    return judged({"images_per_s": 1024 / own, "of_bare_products": bare / own}, **floor)


def recall_by_evidence(*levels: Level) -> Result:
    """How fast a memory recalls 1,000 noisy images by evidence."""
    x = crops(1000)
    memory = SQHN(COLOR, levels, device="cuda")
    memory.learn(x)
    damaged = noisy(x)
    own, paper, bare = timed(
        lambda: memory.recall(damaged, inference="evidence"),
        lambda: memory.recall(damaged),
        products(damaged, 1000, among=False),
    )
    result = {"images_per_s": len(x) / own, "time_over_paper": own / paper, "time_over_bare_products": own / bare}
    return judged(result, images_per_s=40_000)


def memory_of_a_tree() -> Result:
    """Device memory of three levels, 1,000 neurons per node, after 2,000 images: at the end, and the peak."""
    x = crops(2000)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    memory = SQHN(COLOR, tree(1000), device="cuda")
    memory.learn(x)
    torch.cuda.synchronize()
    kept, most = (
        (size - before) / 2**20 for size in (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
    )
    return limited({"megabytes": kept, "megabytes_while_learning": most}, most, "megabytes", 1024)


CASES: dict[str, Callable[[], Result]] = {
    "learn-1": described("One level, 3,072 inputs, 1,000 neurons, 20,000 images.", learn, 400_000, ONE_LEVEL),
    "learn-1-3300": described("As learn-1, with 3,300 neurons.", learn, 300_000, Level(capacity=3300)),
    "learn-1-100000": learn_100000,
    "learn-2": described("Two levels (4, 8), 600 neurons per node, 20,000 images.", learn, 150_000, *TWO_LEVELS),
    "learn-3": described("Three levels (2, 4, 4), 600 neurons per node, 20,000 images.", learn, 80_000, *TREE),
    "recall-3": described(
        "Recall of batches of 1,024 noisy images from the tree of learn-3.", recall, MANY, *TREE, images_per_s=80_000
    ),
    "recall-1": described(
        "Recall of batches of 1,024 noisy images, 3,072 inputs, 3,300 neurons.",
        recall,
        4096,
        Level(capacity=3300),
        of_bare_products=0.5,
    ),
    "evidence-1": described(
        "Recall of 1,000 noisy images by evidence, 3,072 inputs, 1,000 neurons.", recall_by_evidence, ONE_LEVEL
    ),
    "evidence-3": described(
        "Recall as in evidence-1, with three levels (2, 4, 4), 1,000 neurons per node.", recall_by_evidence, *tree(1000)
    ),
    "memory": memory_of_a_tree,
}


def machine() -> Result:
    """The hardware and libraries of the run."""
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
