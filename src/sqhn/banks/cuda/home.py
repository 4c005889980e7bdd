"""The home of memories on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.door import is_tensor
from sqhn.level import Level, Options

if TYPE_CHECKING:
    from torch import Tensor

    from sqhn.banks.cuda.code import CudaCodeBank
    from sqhn.banks.cuda.pattern import CudaPatternBank

__all__ = ["Cuda", "cuda"]

INSTEAD = "or use device='cpu', which needs neither"


def cuda(device: str) -> Cuda:
    """The home on a GPU, or an error that says what is missing."""
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

    return torch.cuda.Stream(place) if place.type == "cuda" else None  # type: ignore[no-untyped-call]


class Cuda:
    """Arrays of torch on a device.

    The memories of a device have a stream of their own, on which all their work is queued: what one thread changes and
    what others ask is done in the order in which they had their turns, and arrays that are given back are used again in
    that order too. The stream of whoever calls waits for it, and it for that one.
    """

    tensors = True
    at_once = False
    chunk = 512
    breadth = 4

    def __init__(self, place: Any) -> None:
        self.place = place
        self.name = str(place)
        self.queue = queue(place)

    @contextmanager
    def stream(self) -> Iterator[None]:
        import torch

        caller = torch.cuda.current_stream(self.place) if self.queue else None
        if caller is None or caller == self.queue:  # the interpreter; or a question within a question
            yield
            return
        self.queue.wait_stream(caller)
        try:
            with torch.cuda.stream(self.queue):
                yield
        finally:
            caller.wait_stream(self.queue)

    def patterns(
        self, nodes: int, shape: tuple[int, ...], level: Level, options: Options, top: bool
    ) -> CudaPatternBank:
        from sqhn.banks.cuda.pattern import CudaPatternBank

        return CudaPatternBank(nodes, shape, level, options, top, self.place)

    def codes(
        self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int
    ) -> CudaCodeBank:
        from sqhn.banks.cuda.code import CudaCodeBank

        return CudaCodeBank(children, level, options, top, values, self.place)

    def values(self, samples: Any) -> Tensor:
        """Samples as float32; uint8 is read as /255."""
        import torch

        x = self.bring(samples)
        if x.dtype == torch.uint8:
            return x.float() / torch.full((), 255.0, device=self.place)  # by a number it would multiply by 1 / 255
        return x.float()

    def bring(self, array: Any) -> Tensor:
        """An array from wherever it is."""
        import torch

        x: Tensor = array if is_tensor(array) else torch.from_numpy(np.require(array, requirements=["C", "W"]))
        return x.to(self.place)

    @staticmethod
    def own(array: Tensor) -> Tensor:
        return array

    def count(self, first: int, many: int) -> Tensor:
        import torch

        return torch.arange(first, first + many, device=self.place)

    def full(self, shape: Sequence[int], value: float) -> Tensor:
        import torch

        return torch.full(tuple(shape), value, dtype=torch.float64, device=self.place)

    @staticmethod
    def concatenate(arrays: Sequence[Tensor], axis: int) -> Tensor:
        import torch

        return torch.cat(tuple(arrays), axis)

    @staticmethod
    def give(array: Tensor, x: object) -> Any:
        """An answer to whoever asked with x: a tensor where x is one, on its device; NumPy otherwise."""
        if not is_tensor(x):
            return array.cpu().numpy()
        if array.is_cuda:
            import torch

            array.record_stream(torch.cuda.current_stream(array.device))  # it was made on another
        return array.to(x.device)  # type: ignore[attr-defined]
