"""Memories on a GPU: arrays of torch, and banks whose loops Triton compiles."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import Limits, Support
from sqhn.inputs import is_tensor
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from torch import Tensor

    from sqhn.banks.cuda.counts import Counts
    from sqhn.banks.cuda.prototypes import Prototypes

__all__ = ["Cuda", "cuda", "owners"]

CHUNK = 512  # samples learned at once
INSTEAD = "or use device='cpu', which needs neither"


def cuda(device: str) -> Cuda:
    """A GPU, or an error that says what is missing."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"device={device!r} needs torch: pip install 'sqhn[torch]', {INSTEAD}") from error
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
        place = torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)
    except (AssertionError, RuntimeError) as error:  # no GPU, an old driver, torch without CUDA, no such GPU
        raise RuntimeError(
            f"device={device!r} cannot be used: {str(error).splitlines()[0]} "
            f"(torch {torch.__version__}, built for CUDA {torch.version.cuda}, {torch.cuda.device_count()} GPUs); "
            "install a torch that fits the driver, " + INSTEAD.replace("neither", "none of it")
        ) from error
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise ImportError(f"device={device!r} needs Triton: pip install triton, {INSTEAD}") from error
    return Cuda(place)


@cache
def queue(place: Any) -> Any:
    """The stream of a device's memories; none where there is only Triton's interpreter."""
    import torch

    return torch.cuda.default_stream(place) if place.type == "cuda" else None


@cache
def memory(place: Any) -> int:
    """`Limits.memory`: one for every 8 GiB."""
    import torch

    total = torch.cuda.get_device_properties(place).total_memory if place.type == "cuda" else 0
    return max(1, total >> 33)


class Thread(threading.local):
    """What is known of a thread: from which other stream it called last, if any; to ask each time takes a while."""

    caller: Any = None


class Cuda:
    """Arrays of torch on a device.

    All work of a device's memories is queued on its default stream: what one thread changes and what others ask is done
    in the order in which they had their turns, and arrays that are given back are used again in that order too. Whoever
    calls from another stream: that one waits for it, and it for that one.
    """

    shards: int | None = None
    keeps_tensors = True
    atomic = False

    def __init__(self, place: Any) -> None:
        import torch

        self.xp, self.place, self.name = torch, place, str(place)
        self.limits = Limits(chunk=CHUNK, breadth=4, memory=memory(place))
        self.queue = queue(place)
        self.thread = Thread()

    @contextmanager
    def stream(self) -> Iterator[None]:
        import torch

        caller = torch.cuda.current_stream(self.place) if self.queue else None
        self.thread.caller = None if caller == self.queue else caller
        if caller is None or caller == self.queue:
            yield
            return
        self.queue.wait_stream(caller)
        try:
            with torch.cuda.stream(self.queue):
                yield
        finally:
            caller.wait_stream(self.queue)

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> Prototypes:
        from sqhn.banks.cuda.prototypes import Prototypes

        return Prototypes(self, tiling, level, options, top)

    def codes(self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int) -> Counts:
        from sqhn.banks.cuda.counts import Counts

        return Counts(self, children, level, options, top, values)

    @staticmethod
    def choose(k: Tensor, h: Tensor, support: Support, value: Tensor, blend: float) -> Tensor:
        import torch

        which = owners(support)
        scores = blend * value + (1 - blend) * support.probability
        own = blend * h.reshape(-1)
        top = own.scatter_reduce(0, which, scores, "amax") - TIE
        last = torch.iinfo(torch.int32).max
        chosen = torch.where(own >= top, k.reshape(-1), last)
        candidates = torch.where(scores >= top[which], support.value, last)
        return chosen.scatter_reduce(0, which, candidates, "amin").reshape(k.shape)

    @staticmethod
    def first_best(u: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        from sqhn.banks.cuda.kernels import choice

        k = torch.empty(u.shape[:2], dtype=torch.int32, device=u.device)
        value = torch.empty(u.shape[:2], dtype=u.dtype, device=u.device)
        choice.first_best[(k.numel(),)](u.contiguous(), k, value, u.shape[2], J=256, num_warps=1)
        return k, value

    @classmethod
    def top_k(cls, u: Tensor, count: int) -> tuple[Tensor, Tensor]:
        import torch

        left, done = u.clone(), []
        for _ in range(count):
            done.append(cls.first_best(left))
            left.scatter_(2, done[-1][0][..., None].long(), -torch.inf)
        k, v = (torch.stack(field, 2) for field in zip(*done))
        return k, v

    @staticmethod
    def pick(u: Tensor, support: Support) -> Tensor:
        values: Tensor = u.reshape(-1, u.shape[2])[owners(support), support.value.long()]
        return values

    def floats(self, samples: Any) -> Tensor:
        import torch

        x = self.asarray(samples)
        if x.dtype == torch.uint8:
            return x.float() / torch.full((), 255.0, device=self.place)  # by a number it would multiply by 1 / 255
        return x.float()

    def asarray(self, array: Any) -> Tensor:
        import torch

        if not is_tensor(array):  # torch accepts only contiguous arrays, in the byte order of the machine
            array = torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))
        x: Tensor = array.to(self.place)
        return x

    def to_user(self, array: Tensor, x: object) -> Any:
        if not is_tensor(x):
            return array.cpu().numpy()
        if self.thread.caller is not None:
            array.record_stream(self.thread.caller)  # it was made on another
        return array.to(x.device)  # type: ignore[attr-defined]


def owners(support: Support) -> Tensor:
    """To which (node, sample) each entry belongs."""
    import torch

    start: Tensor = support.start
    rows = torch.arange(len(start) - 1, device=start.device)
    return torch.repeat_interleave(rows, start.diff(), output_size=len(support.value))
