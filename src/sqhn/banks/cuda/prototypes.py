"""The pattern bank on a GPU: prototypes and their unit vectors, learned a chunk at a time (`kernels.prototypes`).

Samples with holes, and similarity by differences, go another way (`kernels.plain`).

Memory: twice the prototypes, and for a chunk its products with all neurons and among its samples. As much again as the
prototypes to count how often each value was seen, once one was not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sqhn.banks import bounds
from sqhn.banks.cuda.arrays import enlarge, exact_products, full_precision, power, spare, together
from sqhn.banks.cuda.device import Cuda
from sqhn.banks.cuda.evidence import of_patches, of_pyramid
from sqhn.banks.cuda.kernels import plain
from sqhn.banks.cuda.kernels import prototypes as kernels
from sqhn.banks.cuda.neurons import Neurons
from sqhn.banks.interface import BlockEvidence, Learned, Patches, State, Support
from sqhn.banks.rule import SKIPPED, rules
from sqhn.banks.saved import check_prototypes
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["Prototypes"]

SCRATCH = 1 << 27  # products held at once
WIDEST = 4096  # neurons, or values, that one program looks at at once
CACHED = 1 << 23  # products that the cache of a large GPU can hold
ABREAST = 4  # samples of a neuron that lie side by side where there are more
ALIGNED = 16  # numbers that a row of products is a multiple of, so that several are read at once
PART = 1 << 25  # products computed at once
WALKERS = 8  # warps of a program that takes a chunk's decisions
FEW = 32  # samples learned at once where products do not help
PLAIN = 256  # values per node up to which float32 products are near enough


class Prototypes:
    """Prototype vectors of nodes that each see a patch of a tiling."""

    def __init__(self, device: Cuda, tiling: Tiling, level: Level, options: Options, top: bool) -> None:
        nodes = tiling.nodes
        self.device, self.place, self.level = device, device.place, level
        self.nodes, self.size, self.centre = nodes, tiling.size, options.centre
        self.tiling, self.top = tiling, top
        self.euclidean = options.euclidean
        self.rules = rules(level, options, top)
        self.neurons = Neurons(nodes, level, self.place)
        self.m = torch.zeros((nodes, 0, self.size), device=self.place)
        self.known: Tensor | None = None  # how often each value was seen, once one was not
        precise = self.size > PLAIN and exact_products(self.place)
        self.unit = torch.zeros(
            (nodes, 0, self.size), dtype=torch.float64 if precise else torch.float32, device=self.place
        )
        self.m2 = torch.zeros((nodes, 0), dtype=torch.float64, device=self.place)
        # What a chunk needs to know about neurons: how far averaging has cancelled, and how often they moved.
        self.scale = torch.zeros((nodes, 0), device=self.place)
        self.moved = torch.zeros((nodes, 0), dtype=torch.int32, device=self.place)
        unit = bounds.U64 if precise else bounds.U
        self.error, self.masked_error = bounds.product(self.size, unit), bounds.masked_product(self.size, unit)

    @property
    def grown(self) -> Tensor:
        return self.neurons.grown

    @property
    def blocks(self) -> dict[str, Any]:
        """What kernels are compiled for."""
        return {"D": power(self.size, 16, WIDEST), "centre": self.centre}

    @property
    def warps(self) -> int:
        """For programs that look at whole vectors."""
        return max(1, min(8, self.size // 256))

    @property
    def holes(self) -> bool:
        """Whether a sample with missing values was learned."""
        return self.known is not None

    @property
    def prototypes(self) -> tuple[Tensor, Tensor]:
        """As plain kernels take them."""
        return self.m, self.m if self.known is None else self.known

    def plainly(self, seen: Tensor | None) -> dict[str, Any]:
        """What plain kernels are compiled for."""
        tile = {"J": 16, "D": power(self.size, 16, 128)}
        return {
            "masked": seen is not None, "holes": self.holes, "euclidean": self.euclidean, "centre": self.centre, **tile
        }  # fmt: skip

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level
        self.rules = self.rules._replace(capacity=level.capacity)

    def chunk_size(self, limit: int) -> int:
        """How many samples to learn at once."""
        width = self.nodes * (min(self.level.capacity, self.neurons.most + limit) + limit)
        return max(1, min(limit, SCRATCH // width))

    def reserve(self, more: int) -> None:
        """Make room for what `more` samples may grow; where learning may run out of memory."""
        room = self.neurons.wanted(more)
        batch = min(more, self.chunk_size(more))
        width = min(room, self.neurons.most + batch)
        products, part = self.nodes * batch * (width + ALIGNED), max(PART, batch * width)
        among = self.nodes * batch * (batch + 2 * self.size)
        bytes_each = self.unit.itemsize
        needed = 4 * products + bytes_each * min(products, part) + (bytes_each + 4) * among + 300 * self.nodes * batch
        with spare(self.place, needed):
            self.m, self.unit = enlarge(self.m, 1, room), enlarge(self.unit, 1, room)
            self.m2, self.scale = enlarge(self.m2, 1, room), enlarge(self.scale, 1, room)
            self.moved = enlarge(self.moved, 1, room)
            if self.known is not None:
                self.known = enlarge(self.known, 1, room)
            self.neurons.reserve(room)

    def settle(self) -> None:
        """Nothing waits here to be put in order."""

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Learned:
        """Online steps, one after another; room must have been reserved."""
        if evidence.seen is not None:
            self.count_values()
        if self.euclidean or self.holes:
            return self.learn_plainly(evidence)
        x: Tensor = evidence.x
        batch, neurons, gaps = x.shape[1], self.neurons, self.neurons.gaps
        width = min(neurons.room, neurons.most + batch)
        eps = neurons.thresholds(batch)
        shape = (self.nodes, batch)
        a, v = torch.empty((2, *shape), dtype=torch.float64, device=self.place)
        facts = torch.empty((*shape, 2), device=self.place)
        y, xx = self.measured(x, None, eps, facts, a)
        J, rest = power(width, 16, WIDEST), self.blocks
        tiles = -(-width // J)
        norm, value = self.m2.sqrt().float(), torch.empty_like(self.m2)
        if gaps:
            norm = torch.where(self.m2 < 0, -1.0, norm)
        A, top, Q = self.products(y, facts, norm, width, tiles, J)
        with full_precision():
            gram = torch.bmm(y, y.mT).float()
        k, looked, kind = torch.empty((3, *shape), dtype=torch.int32, device=self.place)
        outcome = (k, looked, kind, torch.empty(shape, dtype=torch.int64, device=self.place))
        first, last = torch.full((2, self.nodes, neurons.room), -1, dtype=torch.int32, device=self.place)
        visits = torch.empty((self.nodes, 2 * batch), dtype=torch.int32, device=self.place)
        sums = torch.empty((*shape, 4), dtype=torch.float64, device=self.place)
        kernels.walk[(self.nodes,)](
            (A, top, gram), (x, xx, facts, eps), (self.m, norm, self.scale, self.moved),
            (neurons.c, neurons.written, neurons.grown, neurons.free), (first, last, visits), outcome, value,
            (batch, A.shape[2], tiles, neurons.room, self.size), self.rules.capacity, math.sqrt(self.size),
            self.error + bounds.gamma(8), neurons.step + 1, when_full=self.rules.when_full, gaps=gaps, Q=Q, J=J,
            T=power(tiles, 1, 1 << 20), B=power(batch, 16, 1 << 20), num_warps=WALKERS, **rest,
        )  # fmt: skip
        kernels.replay[(2 * batch, self.nodes)](
            (x, xx), (self.m, self.m2, self.unit, self.scale, self.moved), neurons.mu, (first, visits), outcome, sums,
            a, v, (batch, neurons.room, self.size), self.rules.pseudo, top=self.rules.top, num_warps=self.warps, **rest,
        )  # fmt: skip
        neurons.learned(batch)
        return Learned(k, v, a, kind)

    def learn_plainly(self, evidence: Patches) -> Learned:
        """The same from the vectors alone, a few samples at a time."""
        x, seen = evidence
        done = []
        for start in range(0, x.shape[1], FEW):
            part = slice(start, start + FEW)
            done.append(self.learn_few(x[:, part].contiguous(), None if seen is None else seen[:, part].contiguous()))
        k, v, a, kind = together(done)
        n, t = torch.nonzero(kind != SKIPPED, as_tuple=True)
        self.derive(*torch.unique(torch.stack([n, k[n, t].long()]), dim=1))
        return Learned(k, v, a, kind, None if seen is None else seen.any(2))

    def learn_few(self, x: Tensor, seen: Tensor | None) -> tuple[Tensor, ...]:
        """The first fields of `Learned`."""
        batch, neurons = x.shape[1], self.neurons
        width = min(neurons.room, neurons.most + batch)
        k, kind, changed = torch.empty((3, self.nodes, batch), dtype=torch.int32, device=self.place)
        a, v = torch.empty((2, self.nodes, batch), dtype=torch.float64, device=self.place)
        plain.walk[(self.nodes,)](
            (x, x if seen is None else seen.byte(), neurons.thresholds(batch)), self.prototypes,
            (neurons.c, neurons.mu, neurons.written, neurons.grown, neurons.free), (k, v, a, kind),
            self.compared(x, seen, width), changed, (batch, neurons.room, width, self.size), self.rules.capacity,
            self.rules.pseudo, neurons.step + 1, when_full=self.rules.when_full, top=self.rules.top,
            W=power(width, 16, 1024), B=power(batch, 16, FEW), num_warps=8, **self.plainly(seen),
        )  # fmt: skip
        neurons.learned(batch)
        return k, v, a, kind

    def count_values(self) -> None:
        """Count from now on how often each value was seen: so far as often as its neuron."""
        if self.known is None:
            with spare(self.place):
                self.known = self.neurons.c.int()[:, :, None].expand(-1, -1, self.size).contiguous()

    def forget(self, j: NDArray[np.int64]) -> None:
        """Free the places of different neurons of the only node."""
        which = torch.from_numpy(j).to(self.place)
        self.neurons.forget(which)
        self.m[0, which], self.unit[0, which] = self.centre, 0.0
        self.m2[0, which], self.scale[0, which], self.moved[0, which] = -1.0, 0.0, 0
        if self.known is not None:
            self.known[0, which] = 0

    def products(
        self, y: Tensor, facts: Tensor, norm: Tensor, width: int, tiles: int, J: int
    ) -> tuple[Tensor, Tensor, int]:
        """Products of samples and neurons as `walk` takes them: with bounds of tiles of J, and in which order.

        A walk reads rows and changes columns: where the products are too many for the cache, both must lie together, so
        several samples of a neuron go side by side.
        """
        batch = y.shape[1]
        Q = 1 if self.nodes * batch * width <= CACHED else ABREAST
        wide = -(-width // ALIGNED) * ALIGNED
        A = torch.empty((self.nodes, -(-batch // Q), wide, Q), device=self.place)
        top = torch.empty((self.nodes, batch, tiles), device=self.place) if tiles > 1 else A
        step = max(1, PART // (batch * width))
        for n in range(0, self.nodes, step):
            part = slice(n, n + step)
            with full_precision():
                some = torch.bmm(y[part], self.unit[part, :width].mT)
            about = facts[part], norm[part]
            kernels.arrange[(-(-width // 256), A.shape[1], len(some))](
                some, *about, A[part], batch, width, wide, norm.shape[1], gaps=self.neurons.gaps, Q=Q, J=256
            )
            if tiles > 1:
                kernels.tops[(tiles, len(some) * batch)](
                    some, *about, top[part], batch, width, norm.shape[1], tiles, gaps=self.neurons.gaps, J=J
                )
        return A, top, Q

    def measured(self, x: Tensor, seen: Tensor | None, *learning: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors of samples less the centre, and |x - centre|^2, both over the observed values.

        That is -1 where nothing was observed. learning: thresholds, and what `walk` wants to know (`measure`).
        """
        y = torch.empty(x.shape, dtype=self.unit.dtype, device=self.place)
        xx = torch.empty(x.shape[:2], dtype=torch.float64, device=self.place)
        eps, facts, a = learning or (xx, xx, xx)
        kernels.measure[(x.shape[1], self.nodes)](
            x, x if seen is None else seen.byte(), y, xx, eps, facts, a, x.shape[1], self.size,
            masked=seen is not None, learning=bool(learning), ONE=self.size <= WIDEST, num_warps=self.warps,
            **self.blocks,
        )  # fmt: skip
        return y, xx

    def hold(self, evidence: Patches, k: Tensor, wrote: Tensor) -> None:
        """Average further samples of one thing into the neurons k (nodes,) that its first sample wrote."""
        x: Tensor = evidence.x
        n = torch.arange(self.nodes, device=self.place)[wrote]
        j = k[wrote].long()
        if evidence.seen is not None:
            self.count_values()
        for t in range(x.shape[1]):
            self.neurons.c[n, j] += 1
            m, often = self.m[n, j], self.neurons.c[n, j, None]
            there = torch.ones_like(m, dtype=torch.bool) if evidence.seen is None else evidence.seen[n, t]
            if self.known is not None:
                self.known[n, j] += there
                often = self.known[n, j]
            moved = m + (x[n, t] - m) / often.clamp(min=1).float()
            self.m[n, j] = torch.where(there, torch.where(often == 1, x[n, t], moved), m)
        self.derive(n, j)
        self.neurons.step += x.shape[1]
        self.neurons.written[n, j] = self.neurons.step

    def store(self, evidence: Patches) -> None:
        """Make every sample a new neuron at every node; room must have been reserved."""
        new = self.neurons.append(evidence.x.shape[1])
        n = torch.arange(self.nodes, device=self.place)[:, None].expand_as(new)
        self.m[n, new] = evidence.x
        if self.known is not None:
            self.known[n, new] = 1
        self.derive(n.reshape(-1), new.reshape(-1))

    def derive(self, n: Tensor, j: Tensor) -> None:
        """Compute what is derived from the prototypes j of the nodes n."""
        for part in torch.split(torch.arange(len(n), device=self.place), max(1, SCRATCH // 4 // self.size)):
            u = self.m[n[part], j[part]].double() - self.centre
            square = u.square().sum(1)
            self.m2[n[part], j[part]], self.scale[n[part], j[part]] = square, square.sqrt().float()
            inverse = torch.where(square > 0, 1 / square.clamp(min=1e-300).sqrt(), 0.0)
            self.unit[n[part], j[part]] = (u * inverse[:, None]).to(self.unit.dtype)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[Tensor, Tensor]:
        """The winner and its similarity at every node, for every sample; both (nodes, batch)."""
        if self.euclidean:
            k, v = self.top_k(evidence, 1)
            return k[..., 0], v[..., 0]
        x: Tensor = evidence.x
        seen = evidence.seen
        batch, width = x.shape[1], self.neurons.most
        rows = max(1, SCRATCH // (self.nodes * width))
        parts = []
        for start in range(0, batch, rows):
            part = slice(start, start + rows)
            masks = None if seen is None else seen[:, part].contiguous()
            with spare(self.place):
                parts.append(self.best_of(x[:, part].contiguous(), masks, width))
        return together(parts)

    def best_of(self, x: Tensor, seen: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
        batch = x.shape[1]
        k = torch.empty((self.nodes, batch), dtype=torch.int32, device=self.place)
        v = torch.empty((self.nodes, batch), dtype=torch.float64, device=self.place)
        (y, xx), unit = self.measured(x, seen), self.unit[:, :width]
        masked = seen is not None
        with full_precision():
            if seen is not None:
                squares = torch.bmm(seen.to(unit.dtype), unit.square().mT)
            A = torch.bmm(y, unit.mT)
        value = torch.empty(A.shape, dtype=torch.float64, device=self.place)
        kernels.best[(batch, self.nodes)](
            A, squares if masked else A, (x, x if seen is None else seen.byte(), xx), self.m, self.m2, self.grown,
            value, k, v, (batch, width, self.neurons.room, self.size), self.masked_error if masked else self.error,
            masked=masked, gaps=self.neurons.gaps, J=power(width, 16, 1024), num_warps=max(4, self.warps),
            **self.blocks,
        )  # fmt: skip
        return k, v

    def top_k(self, evidence: Patches, count: int) -> tuple[Tensor, Tensor]:
        """The best, the winner first, from all similarities in float64; see `PatternBank.top_k`."""
        rows = max(1, SCRATCH // (8 * self.nodes * max(self.neurons.most, self.size)))
        done = []
        for start in range(0, evidence.x.shape[1], rows):
            part = slice(start, start + rows)
            masks = None if evidence.seen is None else evidence.seen[:, part]
            with spare(self.place):
                done.append(self.device.top_k(self.activity(Patches(evidence.x[:, part], masks)), count))
        return together(done)

    def activity(self, evidence: Patches) -> Tensor:
        """The similarity of every neuron: (nodes, batch, most grown), minus infinity where a node has fewer."""
        most = int(self.grown.max())
        s = self.compared(*evidence, most) if self.euclidean else self.cosines(evidence, most)
        s = torch.where(self.neurons.living(most), s, -torch.inf)
        if self.holes:
            s[self.grown == 0, :, 0] = 0.0
        return s

    def compared(self, x: Tensor, seen: Tensor | None, width: int) -> Tensor:
        """From the vectors, of every place."""
        s = torch.empty((*x.shape[:2], width), dtype=torch.float64, device=self.place)
        how = self.plainly(seen)
        plain.activity[(-(-width // how["J"]), x.shape[1], self.nodes)](
            (x.contiguous(), x if seen is None else seen.byte().contiguous()), self.prototypes, self.neurons.c, s,
            (x.shape[1], self.neurons.room, width, self.size), num_warps=4, **how,
        )  # fmt: skip
        return s

    def cosines(self, evidence: Patches, most: int) -> Tensor:
        """By cosines, of every place."""
        x: Tensor = evidence.x
        seen = evidence.seen
        centre = self.centre
        u = self.m[:, :most].double() - centre
        y = x.double() - centre
        mm = self.m2[:, None, :most]
        if seen is not None:
            y = torch.where(seen, y, 0.0)
            mm = torch.where(seen.all(2, keepdim=True), mm, torch.bmm(seen.double(), u.square().mT))
        own, length = y.square().sum(2, keepdim=True).sqrt(), mm.clamp(min=0).sqrt()
        both = own * length
        cosine = torch.where(both > 0, torch.bmm(y, u.mT) / torch.where(both > 0, both, 1.0), (own == length).double())
        s = centre + (1 - centre) * cosine
        return s if seen is None else torch.where(seen.any(2, keepdim=True), s, 0.0)

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        """The evidence for neurons, each node's patch being a block."""
        return of_patches(self, evidence)

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> Tensor:
        """The evidence for the neurons of one level over blocks of all scales."""
        return of_pyramid(self, evidence, scales)

    def at(self, evidence: Patches, support: Support) -> Tensor:
        """The similarity of the neurons that a parent expects."""
        x: Tensor = evidence.x
        seen = evidence.seen
        s = torch.empty(len(support.value), dtype=torch.float64, device=self.place)
        if self.euclidean:
            plain.at[(x.shape[1], self.nodes)](
                (x, x if seen is None else seen.byte()), self.prototypes, support.start, support.value, s,
                (x.shape[1], self.neurons.room, self.size), num_warps=4, **self.plainly(seen),
            )  # fmt: skip
            return s
        kernels.at[(x.shape[1], self.nodes)](
            (x, x if seen is None else seen.byte(), self.measured(x, seen)[1]), self.m, support.start, support.value,
            s, x.shape[1], self.neurons.room, self.size, masked=seen is not None, num_warps=self.warps, **self.blocks,
        )  # fmt: skip
        return s

    def similarity(self, evidence: Patches, k: Tensor) -> Tensor:
        """The similarity of neurons k (nodes, batch), one for each sample."""
        one = torch.arange(k.numel() + 1, device=self.place)
        return self.at(evidence, Support(one, k.reshape(-1), one)).reshape(k.shape)

    def vectors(self, k: Tensor) -> Tensor:
        """The prototypes of neurons k (nodes, batch): (nodes, batch, size)."""
        return self.m[torch.arange(self.nodes, device=self.place)[:, None], k.long()]

    def known_values(self, k: Tensor) -> Tensor:
        """Which values of the neurons k (nodes, batch) were ever seen: (nodes, batch, size)."""
        n, j = torch.arange(self.nodes, device=self.place)[:, None], k.long()
        if self.known is not None:
            return self.known[n, j] > 0
        return (self.neurons.c[n, j] > 0)[:, :, None].expand(-1, -1, self.size).clone()

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What must be saved: the grown prototypes of all nodes, one after another."""
        found = {"prototypes": self.m} if self.known is None else {"prototypes": self.m, "known": self.known}
        return {name: array[self.neurons.there()].cpu().numpy() for name, array in found.items()}

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        """Take over a saved state; the neurons' own (counts and growth) must be in place."""
        check_prototypes(state, self.size, self.centre)
        room = self.neurons.room
        for name in ("m", "unit", "m2", "scale", "moved"):
            setattr(self, name, enlarge(getattr(self, name), 1, room))
        n, j = torch.nonzero(self.neurons.there(), as_tuple=True)
        self.m[n, j] = torch.from_numpy(state["prototypes"]).to(self.place)
        if "known" in state:
            self.known = torch.zeros(self.m.shape, dtype=torch.int32, device=self.place)
            self.known[n, j] = torch.from_numpy(state["known"]).to(self.place)
        self.derive(n, j)
        self.m2[n, j] = torch.where(self.neurons.c[n, j] > 0, self.m2[n, j], -1.0)
