"""Memories on a GPU: arrays of torch, and banks whose loops Triton compiles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sqhn.banks.cuda.arrays import Evidence, owners, reserve_memory, split, together
from sqhn.banks.cuda.counts import Counts
from sqhn.banks.cuda.kernels import common as kernels
from sqhn.banks.cuda.prototypes import Prototypes
from sqhn.banks.interface import Limits, Support
from sqhn.inputs import is_tensor
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling
from sqhn.sizes import array_bytes

SAMPLES_PER_CHUNK = 512
ACTIVITIES_AT_ONCE = 1 << 24


class Cuda:
    """Arrays of torch on a device.

    All work of a device's memories is queued on its default stream. So changes and answers are computed in the order in
    which threads held the lock, and memory that was freed is used again in that order too. A call from another stream
    makes the default stream wait for that stream first, and that stream for the default stream afterwards.
    """

    shards: int | None = None
    keeps_tensors = True
    keeps_bytes = False
    atomic = False
    xp = torch

    def __init__(self, place: torch.device) -> None:
        self.place, self.name = place, str(place)
        here = place.type == "cuda"  # else there is only Triton's interpreter
        memory = torch.cuda.get_device_properties(place).total_memory if here else 0
        self.limits = Limits(chunk=SAMPLES_PER_CHUNK, breadth=4, memory=max(1, memory >> 33))  # 1 for every 8 GiB
        self.queue: Any = torch.cuda.default_stream(place) if here else None
        self.thread = threading.local()  # its other stream, if any: asking torch each time takes too long

    @contextmanager
    def stream(self) -> Iterator[None]:
        caller = torch.cuda.current_stream(self.place) if self.queue else None
        self.thread.caller = caller = None if caller == self.queue else caller
        if caller is None:
            yield
            return
        self.queue.wait_stream(caller)
        try:
            with torch.cuda.stream(self.queue):
                yield
        finally:
            caller.wait_stream(self.queue)

    nbytes = staticmethod(array_bytes)

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> Prototypes:
        return Prototypes(self, tiling, level, options, top)

    def codes(self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int) -> Counts:
        return Counts(self, children, level, options, top, values)

    @staticmethod
    def choose(k: Tensor, h: Tensor, support: Support, value: Tensor, blend: float) -> Tensor:
        which = owners(support)
        scores = blend * value + (1 - blend) * support.probability
        own = blend * h.reshape(-1)
        top = own.scatter_reduce(0, which, scores, "amax") - TIE
        last = torch.iinfo(torch.int32).max
        chosen = torch.where(own >= top, k.reshape(-1), last)
        candidates = torch.where(scores >= top[which], support.value, last)
        return chosen.scatter_reduce(0, which, candidates, "amin").reshape(k.shape)

    @staticmethod
    def top_k(u: Tensor, count: int) -> tuple[Tensor, Tensor]:
        left = u.contiguous() if count == 1 else u.clone(memory_format=torch.contiguous_format)
        k = torch.empty((count, *u.shape[:2]), dtype=torch.int32, device=u.device)
        v = torch.empty(k.shape, dtype=u.dtype, device=u.device)
        for i in range(count):
            kernels.first_best[(k[i].numel(),)](left, k[i], v[i], u.shape[2], J=256, num_warps=1)
            if count > 1:
                left.scatter_(2, k[i, ..., None].long(), -torch.inf)
        return k.movedim(0, 2).contiguous(), v.movedim(0, 2).contiguous()

    def top_k_of(
        self, activity: Callable[[Evidence], Tensor], evidence: Evidence, count: int, width: int
    ) -> tuple[Tensor, Tensor]:
        """The top_k of a bank's activities, a part of the batch at a time; width: values per sample."""
        with reserve_memory(self.place):
            return together(
                [self.top_k(activity(part), count) for part in split(evidence, ACTIVITIES_AT_ONCE // width)]
            )

    def floats(self, samples: Any) -> Tensor:
        x = self.asarray(samples)
        if x.dtype == torch.uint8:
            return x.float() / torch.full((), 255.0, device=self.place)  # a number: torch would multiply by its inverse
        return x.float()

    def asarray(self, array: Any) -> Tensor:
        if not is_tensor(array):  # torch accepts only contiguous arrays, in the byte order of the machine
            array = torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))
        x: Tensor = array.to(self.place).contiguous()
        return x

    def to_user(self, array: Tensor, x: object) -> Any:
        if not is_tensor(x):
            return array.cpu().numpy()
        if caller := getattr(self.thread, "caller", None):
            array.record_stream(caller)  # the array was made on another stream
        return array.to(x.device)  # type: ignore[attr-defined]
