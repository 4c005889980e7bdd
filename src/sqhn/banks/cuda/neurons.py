"""The statistics of neurons, in every bank on a GPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sqhn.banks.cuda.arrays import enlarge_all
from sqhn.banks.interface import State
from sqhn.banks.saved import KINDS, check_growth, kinds
from sqhn.level import Level


class Neurons:
    """Counts, mean activities, last writes and growth of the neurons of a level; (nodes, room), room grows as needed.

    free: how many slots of each node are free, because their neurons were forgotten; the count of a free slot is 0.
    any_free: whether any slot was ever freed. most: an upper bound of the neurons of any node, known without waiting
    for the device. Only those of the memory node (`top`) are saved whole; kernels keep them at all levels.
    """

    def __init__(self, nodes: int, level: Level, top: bool, device: torch.device) -> None:
        self.level, self.top, self.device = level, top, device
        self.c = torch.zeros((nodes, 0), dtype=torch.int64, device=device)
        self.mu = torch.zeros((nodes, 0), dtype=torch.float64, device=device)
        self.written = torch.zeros((nodes, 0), dtype=torch.int64, device=device)
        self.grown = torch.zeros(nodes, dtype=torch.int64, device=device)
        self.free = torch.zeros(nodes, dtype=torch.int64, device=device)
        self.any_free = False
        self.step = 0
        self.most = 0

    @property
    def room(self) -> int:
        return self.c.shape[1]

    def wanted(self, more: int) -> int:
        """The room that `more` samples may need: it grows geometrically, and never beyond the capacity."""
        capacity = self.level.capacity
        if min(self.most + more, capacity) > self.room:
            self.most = int(self.grown.max())  # waits for the device, but ever less often
        need = min(self.most + more, capacity)
        return self.room if need <= self.room else min(max(need, 2 * self.room), capacity)

    def learned(self, samples: int) -> None:
        """Count samples that each may have grown a neuron at every node."""
        self.step += samples
        self.most = min(self.most + samples, self.level.capacity)

    def skip(self, steps: int) -> None:
        """Count steps of every node in which nothing was written."""
        self.step += steps

    def append(self, count: int) -> Tensor:
        """Count `count` new neurons at every node; their indices (nodes, count)."""
        each = torch.arange(count, device=self.device)
        new = self.grown[:, None] + each
        self.c.scatter_(1, new, 1)
        self.mu.scatter_(1, new, 1.0)
        self.written.scatter_(1, new, (self.step + 1 + each).expand_as(new))
        self.grown += count
        self.learned(count)
        return new

    def thresholds(self, batch: int) -> Tensor:
        """The growth thresholds of the next steps."""
        eps = np.asarray(self.level.threshold(self.step + np.arange(batch)), np.float64)
        return torch.from_numpy(eps).to(self.device, non_blocking=True)

    def slots(self) -> Tensor:
        """Which places (nodes, room) are slots: of a neuron, or freed; the others were never used."""
        return torch.arange(self.room, device=self.device) < self.grown[:, None]

    def living(self, most: int) -> Tensor:
        """Which of the first slots hold a neuron: (nodes, 1, most)."""
        grown = torch.arange(most, device=self.device) < self.grown[:, None]
        return (grown & (self.c[:, :most] > 0) if self.any_free else grown)[:, None, :]

    def forget(self, j: Tensor) -> None:
        """Free the slots of different neurons of the only node."""
        self.c[0, j], self.mu[0, j], self.written[0, j] = 0, 0.0, 0
        self.free += len(j)
        self.any_free = True

    def state(self) -> State:
        """The arrays to save, as copies: growth, and the statistics of all slots, one node after another."""
        slots = self.slots()
        parts = {"grown": self.grown.clone(), **{name: getattr(self, name)[slots] for name in kinds(self.top)}}
        return {name: part.cpu().numpy() for name, part in parts.items()}

    def restore(self, state: State, step: int) -> None:
        """Take over a saved state, into new neurons."""
        grown = check_growth(state, len(self.grown), self.level, self.top)
        self.grown.copy_(torch.from_numpy(grown))
        self.step, self.most = step, int(grown.max())
        enlarge_all(self.most, (self, KINDS))
        slots = self.slots()
        for name in kinds(self.top):
            getattr(self, name)[slots] = torch.from_numpy(state[name]).to(self.device)
        self.free = (slots & (self.c == 0)).sum(1)
        self.any_free = bool(self.free.any())
