"""Descent of values on an energy with Adam, as one CUDA graph per step on a GPU."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Values = list["Tensor"]  # from the pixels or the first hidden layer upward; each is (samples, width)
Energy = Callable[[Values], "tuple[Tensor, Values]"]
Rates = NDArray[np.float64]

ENERGY_TOLERANCE = 1e-3
"""Descent stops when one more step changes no sample's energy by more than this."""
CHECK_INTERVAL = 10
"""The number of steps between two checks whether descent may stop: on a GPU every check waits for the device."""


def cooled(steps: int, rate: float) -> Rates:
    """The rates of a descent that comes to rest: constant in the first half, falling to 0 in the second.

    At a constant rate descent hovers around the minimum. With 1,024 images in a BayesPCN of width 1,024 it stays so far
    above the minimum that missing pixels are wrong by .25; a thousand steps of cooling then bring them to .0001.
    """
    return rate * np.minimum(1, 2 * np.arange(steps, 0, -1) / steps)


def descend(energy: Energy, x: Values, rates: Rates) -> tuple[Tensor, int]:
    """Move values down their energy, in place, with Adam, one step per rate; returns final energies and steps taken.

    All samples stop together, when none of them changes any more. This is checked every `CHECK_INTERVAL` steps only, so
    descent may run longer than necessary, never shorter.
    """
    import torch

    rate = torch.tensor(0.0, device=x[0].device)
    optimizer = torch.optim.Adam(x, lr=rate, fused=True, capturable=x[0].is_cuda)
    before, now = torch.full((2, len(x[0])), math.inf, device=x[0].device, dtype=x[0].dtype)

    def step() -> None:
        energies, gradients = energy(x)
        before.copy_(now)
        now.copy_(energies)
        for values, gradient in zip(x, gradients, strict=True):
            values.grad = gradient
        optimizer.step()

    again, last = step, 0.0
    for taken, now_rate in enumerate(rates.tolist(), start=1):
        if now_rate != last:
            rate.fill_(now_rate)
            last = now_rate
        again()
        if taken == 1 and x[0].is_cuda:  # the first step creates the state of the optimizer, outside the graph
            again = captured(step)
        if taken % CHECK_INTERVAL == 0 and bool(((now - before).abs() <= ENERGY_TOLERANCE).all()):
            break
    return energy(x)[0], taken


class LatestGraphs(threading.local):
    """The latest graph of a thread on each stream; the next graph reuses its memory.

    Graphs with memory of their own would keep it until the device is full, and it cannot be freed during a capture.
    """

    def __init__(self) -> None:
        self.by_stream: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}


LATEST_GRAPHS = LatestGraphs()


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The same work on the same tensors as one launch on the GPU: a step is dozens of small ones."""
    import torch

    graph, own, here = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
    latest = LATEST_GRAPHS.by_stream.get(here)
    own.wait_stream(here)
    with torch.cuda.stream(own):
        graph.capture_begin(pool=latest.pool() if latest else None, capture_error_mode="thread_local")
        step()
        graph.capture_end()
    here.wait_stream(own)
    LATEST_GRAPHS.by_stream[here] = graph
    return graph.replay
