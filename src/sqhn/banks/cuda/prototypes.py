"""The pattern bank on a GPU: prototypes and their unit vectors, learned a chunk at a time (`kernels.prototypes`).

Samples with missing values and similarity by differences are learned by another path, `kernels.direct`, which also
compares the few neurons that a parent expects.

Memory: twice the prototypes, and for a chunk its products with all neurons and among its samples. Once a sample with
missing values was learned, as much again as the prototypes, to count how often each value was observed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sqhn.banks import bounds
from sqhn.banks.cuda.arrays import (
    LARGEST_BLOCK,
    enlarge_all,
    exact_products,
    full_precision,
    power_of_two,
    reserve_memory,
    split,
    together,
)
from sqhn.banks.cuda.evidence import of_patches, of_pyramid
from sqhn.banks.cuda.kernels import direct
from sqhn.banks.cuda.kernels import prototypes as kernels
from sqhn.banks.cuda.kernels.common import NONE
from sqhn.banks.cuda.neurons import Neurons
from sqhn.banks.interface import Learned, Patches, State, Support
from sqhn.banks.rule import SKIPPED, rules
from sqhn.banks.saved import KINDS, check_prototypes, prototypes_of
from sqhn.level import Level, Options, evidence_centre
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.cuda.gpu import Cuda


FLOAT32_SIZE = 256  # values per node up to which float32 products are accurate enough
PRODUCTS_PER_CHUNK = 1 << 27
VALUES_AT_ONCE = 1 << 25  # how many products, or values of prototypes, are handled at once
CACHED_PRODUCTS = 1 << 23  # how many products the cache of a large GPU holds
SAMPLES_INTERLEAVED = 4  # if a chunk has more products than that
ROW_MULTIPLE = 16  # rows of products are padded to a multiple of this, so that several are read at once
PROTOTYPE_WARPS = 8  # of the program that learns a chunk, sample by sample, at one node
EXPECTED_AT_ONCE = 4  # how many expected neurons one program compares at once; usually there is one
DIRECT_CHUNK = 32  # how many samples are compared directly and learned at once


class Prototypes:
    """A `PatternBank`: prototype vectors of nodes that each see a patch of a tiling.

    For each neuron (nodes, room): m, the prototype; m2 and unit, the squared length and the unit vector after the
    centre is subtracted, in float64 where that is as fast; known, how often each value was observed, once a sample with
    missing values was learned.
    """

    def __init__(self, device: Cuda, tiling: Tiling, level: Level, options: Options, top: bool) -> None:
        nodes = tiling.nodes
        self.device, self.place, self.level = device, device.place, level
        self.nodes, self.size, self.centre = nodes, tiling.size, options.centre
        self.tiling, self.top = tiling, top
        self.evidence_centre = evidence_centre(level, options)
        self.euclidean = options.euclidean
        self.rules = rules(level, options, top)
        self.neurons = Neurons(nodes, level, top, self.place)
        self.node = torch.arange(nodes, device=self.place)[:, None]  # to index (nodes, batch)
        precise = self.size > FLOAT32_SIZE and exact_products(self.place)
        self.m = torch.zeros((nodes, 0, self.size), device=self.place)
        self.unit = torch.zeros_like(self.m, dtype=torch.float64 if precise else torch.float32)
        self.m2 = torch.zeros((nodes, 0), dtype=torch.float64, device=self.place)
        self.known: Tensor | None = None
        unit = bounds.U64 if precise else bounds.U
        self.error, self.masked_error = bounds.product(self.size, unit), bounds.masked_product(self.size, unit)

    @property
    def grown(self) -> Tensor:
        return self.neurons.grown

    @property
    def holes(self) -> bool:
        return self.known is not None

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays (nodes, room, ...)."""
        return ["m", "unit", "m2", *(["known"] if self.holes else [])]

    @property
    def constants(self) -> dict[str, Any]:
        """For kernels: how many values of a vector they handle at once, and the centre."""
        return {"D": power_of_two(self.size, 16, LARGEST_BLOCK), "centre": self.centre}

    @property
    def warps(self) -> int:
        """For kernels that handle whole vectors."""
        return power_of_two(self.size // 256, 1, 8)

    @property
    def direct_constants(self) -> dict[str, Any]:
        """For direct kernels: the kind of comparison, and how many neurons and values they handle at once."""
        return {"euclidean": self.euclidean, "centre": self.centre, "J": 16, "D": power_of_two(self.size, 16, 128)}

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level
        self.rules = self.rules._replace(capacity=level.capacity)

    def chunk_size(self, limit: int) -> int:
        width = self.nodes * (min(self.level.capacity, self.neurons.most + limit) + limit)
        return max(1, min(limit, PRODUCTS_PER_CHUNK // width))

    def reserve(self, more: int) -> None:
        room = self.neurons.wanted(more)
        batch = min(more, self.chunk_size(more))
        width = min(room, self.neurons.most + batch)
        products, part = self.nodes * batch * (width + ROW_MULTIPLE), max(VALUES_AT_ONCE, batch * width)
        among = self.nodes * batch * (batch + 2 * self.size)
        bytes_each = self.unit.itemsize
        needed = 4 * products + bytes_each * min(products, part) + (bytes_each + 4) * among + 300 * self.nodes * batch
        with reserve_memory(self.place, needed):
            enlarge_all(room, (self, self.arrays), (self.neurons, KINDS))

    def settle(self) -> None:
        pass

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Learned:
        if evidence.seen is not None:
            self.count_values()
        if self.euclidean or self.holes:
            return self.learn_directly(evidence)
        x: Tensor = evidence.x
        batch, neurons, any_free = x.shape[1], self.neurons, self.neurons.any_free
        width = min(neurons.room, neurons.most + batch)
        eps = neurons.thresholds(batch)
        shape = (self.nodes, batch)
        a, v = torch.empty((2, *shape), dtype=torch.float64, device=self.place)
        facts = torch.empty((*shape, 2), device=self.place)
        y, xx = self.measure(x, None, (eps, facts, a))
        J = power_of_two(width, 16, LARGEST_BLOCK)
        tiles = -(-width // J)
        norm, value = self.m2.sqrt().float(), torch.empty_like(self.m2)
        scale, moved = norm.clone(), torch.zeros_like(norm, dtype=torch.int32)
        A, top, Q = self.products(y, xx, norm, width, tiles, J)
        with full_precision():
            gram = torch.bmm(y, y.mT).float()
        k, looked, kind = torch.empty((3, *shape), dtype=torch.int32, device=self.place)
        outcome = (k, looked, kind, torch.empty(shape, dtype=torch.int64, device=self.place))
        first, last = torch.full((2, self.nodes, neurons.room), NONE.value, dtype=torch.int32, device=self.place)
        visits = torch.empty((self.nodes, 2 * batch), dtype=torch.int32, device=self.place)
        sums = torch.empty((*shape, 4), dtype=torch.float64, device=self.place)
        kernels.walk[(self.nodes,)](
            A, top, gram, (x, xx, facts, eps), (self.m, norm, scale, moved),
            (neurons.c, neurons.written, neurons.grown, neurons.free), first, last, visits, outcome, value,
            (batch, A.shape[2], tiles, neurons.room, self.size), self.rules.capacity, math.sqrt(self.size),
            self.error + bounds.gamma(8), neurons.step + 1, when_full=self.rules.when_full, any_free=any_free, Q=Q, J=J,
            T=power_of_two(tiles, 1, 1 << 20), B=power_of_two(batch, 16, 1 << 20), num_warps=PROTOTYPE_WARPS,
            **self.constants,
        )  # fmt: skip
        kernels.replay[(2 * batch, self.nodes)](
            x, xx, self.m, self.m2, self.unit, neurons.mu, first, visits, *outcome, sums, a, v, batch, neurons.room,
            self.size, self.rules.pseudo, top=self.rules.top, num_warps=self.warps, **self.constants,
        )  # fmt: skip
        neurons.learned(batch)
        return Learned(k, v, a, kind)

    def learn_directly(self, evidence: Patches) -> Learned:
        """Online steps from the vectors alone, a few samples at a time."""
        k, v, a, kind = together([self.learn_few(part.x, part.seen) for part in split(evidence, DIRECT_CHUNK)])
        n, t = torch.nonzero(kind != SKIPPED, as_tuple=True)
        self.derive(*torch.unique(torch.stack([n, k[n, t].long()]), dim=1))
        return Learned(k, v, a, kind)

    def learn_few(self, x: Tensor, seen: Tensor | None) -> tuple[Tensor, ...]:
        """The first fields of `Learned`."""
        batch, neurons = x.shape[1], self.neurons
        width = min(neurons.room, neurons.most + batch)
        k, kind, changed = torch.empty((3, self.nodes, batch), dtype=torch.int32, device=self.place)
        a, v = torch.empty((2, self.nodes, batch), dtype=torch.float64, device=self.place)
        direct.walk[(self.nodes,)](
            samples(x, seen), neurons.thresholds(batch), (self.m, self.known),
            (neurons.c, neurons.mu, neurons.written, neurons.grown, neurons.free), (k, v, a, kind),
            self.compared(x, seen, width), changed, (batch, neurons.room, self.size), width, self.rules.capacity,
            self.rules.pseudo, neurons.step + 1, when_full=self.rules.when_full, top=self.rules.top,
            W=power_of_two(width, 16, 1024), B=power_of_two(batch, 16, DIRECT_CHUNK), num_warps=8,
            **self.direct_constants,
        )  # fmt: skip
        neurons.learned(batch)
        return k, v, a, kind

    def count_values(self) -> None:
        """Count from now on how often each value was observed: so far as often as its neuron was written."""
        if self.known is None:
            with reserve_memory(self.place):
                self.known = self.neurons.c.int()[:, :, None].expand(-1, -1, self.size).contiguous()

    def forget(self, j: NDArray[np.int64]) -> None:
        which = torch.from_numpy(j).to(self.place)
        self.neurons.forget(which)
        for name in self.arrays:
            getattr(self, name)[0, which] = self.centre if name == "m" else 0

    def products(
        self, y: Tensor, xx: Tensor, norm: Tensor, width: int, tiles: int, J: int
    ) -> tuple[Tensor, Tensor, int]:
        """Products of samples and neurons for `walk`, the largest product of every J neurons, and the order.

        A walk reads rows and changes columns. If there are too many products for the cache, rows and columns should
        both be near each other in memory, so several samples of a neuron are interleaved.
        """
        batch, c = y.shape[1], self.neurons.c if self.neurons.any_free else None
        Q = 1 if self.nodes * batch * width <= CACHED_PRODUCTS else SAMPLES_INTERLEAVED
        wide = -(-width // ROW_MULTIPLE) * ROW_MULTIPLE
        A = torch.empty((self.nodes, -(-batch // Q), wide, Q), device=self.place)
        top = torch.empty((self.nodes, batch, tiles), device=self.place) if tiles > 1 else A
        step = max(1, VALUES_AT_ONCE // (batch * width))
        for n in range(0, self.nodes, step):
            part = slice(n, n + step)
            with full_precision():
                some = torch.bmm(y[part], self.unit[part, :width].mT)
            kernels.arrange[(-(-width // 256), A.shape[1], len(some))](
                some, xx[part], norm[part], None if c is None else c[part], A[part], batch, width, wide, norm.shape[1],
                Q=Q, J=256,
            )  # fmt: skip
        if tiles > 1:
            kernels.tops[(tiles, A.shape[1], self.nodes)](A, top, batch, width, wide, tiles, Q=Q, J=J)
        return A, top, Q

    def measure(
        self, x: Tensor, seen: Tensor | None, learning: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Unit vectors of samples after the centre is subtracted, and |x - centre|^2, both over the observed values.

        learning: the thresholds, and the arrays that the kernel fills for `walk`.
        """
        y = torch.empty(x.shape, dtype=self.unit.dtype, device=self.place)
        xx = torch.empty(x.shape[:2], dtype=torch.float64, device=self.place)
        kernels.measure[(x.shape[1], self.nodes)](
            samples(x, seen), y, xx, learning, x.shape[1], self.size, num_warps=self.warps, **self.constants
        )
        return y, xx

    def hold(self, evidence: Patches, k: Tensor, wrote: Tensor) -> None:
        x: Tensor = evidence.x
        if evidence.seen is not None:
            self.count_values()
        for t in range(x.shape[1]):
            n, j = self.node[wrote[:, t], 0], k[wrote[:, t], t].long()
            self.neurons.step += 1
            self.neurons.c[n, j] += 1
            self.neurons.written[n, j] = self.neurons.step
            m, often = self.m[n, j], self.neurons.c[n, j, None]
            there = torch.ones_like(m, dtype=torch.bool) if evidence.seen is None else evidence.seen[n, t]
            if self.known is not None:
                self.known[n, j] += there
                often = self.known[n, j]
            moved = m + (x[n, t] - m) / often.clamp(min=1).float()
            self.m[n, j] = torch.where(there, torch.where(often == 1, x[n, t], moved), m)
        n, which = torch.nonzero(wrote, as_tuple=True)
        self.derive(*torch.unique(torch.stack([n, k[n, which].long()]), dim=1))

    def store(self, evidence: Patches) -> None:
        new = self.neurons.append(evidence.x.shape[1])
        self.m[self.node, new] = evidence.x
        if self.known is not None:
            self.known[self.node, new] = 1
        self.derive(self.node.expand_as(new).reshape(-1), new.reshape(-1))

    def derive(self, n: Tensor, j: Tensor) -> None:
        """Compute m2 and unit from the prototypes j of the nodes n."""
        for part in torch.split(torch.arange(len(n), device=self.place), max(1, VALUES_AT_ONCE // self.size)):
            u = self.m[n[part], j[part]].double() - self.centre
            square = u.square().sum(1)
            self.m2[n[part], j[part]] = square
            inverse = torch.where(square > 0, 1 / square.clamp(min=1e-300).sqrt(), 0.0)
            self.unit[n[part], j[part]] = (u * inverse[:, None]).to(self.unit.dtype)

    # -- questions -----------------------------------------------------------------------------------------------

    def top_k(self, evidence: Patches, count: int) -> tuple[Tensor, Tensor]:
        most = self.neurons.most
        if self.euclidean or count > 1:
            return self.device.top_k_of(self.activity, evidence, count, self.nodes * max(most, self.size))
        with reserve_memory(self.place):
            parts = split(evidence, PRODUCTS_PER_CHUNK // (self.nodes * most))
            k, v = together([self.best_of(part.x, part.seen, most) for part in parts])
        return k[..., None], v[..., None]

    def best_of(self, x: Tensor, seen: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
        batch, c = x.shape[1], self.neurons.c if self.neurons.any_free else None
        k = torch.empty((self.nodes, batch), dtype=torch.int32, device=self.place)
        v = torch.empty((self.nodes, batch), dtype=torch.float64, device=self.place)
        (y, xx), unit = self.measure(x, seen), self.unit[:, :width]
        with full_precision():
            A = torch.bmm(y, unit.mT)
            squares = None if seen is None else torch.bmm(seen.to(unit.dtype), unit.square().mT)
        value = torch.empty(A.shape, dtype=torch.float64, device=self.place)
        kernels.best[(batch, self.nodes)](
            A, squares, samples(x, seen), xx, self.m, c, self.grown, value, k, v, batch, width, self.neurons.room,
            self.size, self.error if seen is None else self.masked_error, J=power_of_two(width, 16, 1024),
            num_warps=max(4, self.warps), **self.constants,
        )  # fmt: skip
        return k, v

    def activity(self, evidence: Patches) -> Tensor:
        most = int(self.grown.max())
        compare = self.compared if self.euclidean else self.cosines
        s = compare(evidence.x, evidence.seen, most)
        s = torch.where(self.neurons.living(most), s, -torch.inf)
        if self.holes:
            s[self.grown == 0, :, 0] = 0.0
        return s

    def compared(self, x: Tensor, seen: Tensor | None, width: int) -> Tensor:
        """The similarities of all neurons, compared directly: (nodes, batch, width)."""
        s = torch.empty((*x.shape[:2], width), dtype=torch.float64, device=self.place)
        constants = self.direct_constants
        direct.activity[(-(-width // constants["J"]), x.shape[1], self.nodes)](
            samples(x, seen), (self.m, self.known), self.neurons.c, s, (x.shape[1], self.neurons.room, self.size),
            width, num_warps=4, **constants,
        )  # fmt: skip
        return s

    def cosines(self, x: Tensor, seen: Tensor | None, width: int) -> Tensor:
        """The similarities of all neurons by cosines, from products in float64: (nodes, batch, width)."""
        u, y, mm = self.m[:, :width].double() - self.centre, x.double() - self.centre, self.m2[:, None, :width]
        if seen is not None:
            y = torch.where(seen, y, 0.0)
            mm = torch.where(seen.all(2, keepdim=True), mm, torch.bmm(seen.double(), u.square().mT))
        own, length = y.square().sum(2, keepdim=True).sqrt(), mm.sqrt()
        both = own * length
        cosine = torch.where(both > 0, torch.bmm(y, u.mT) / torch.where(both > 0, both, 1.0), (own == length).double())
        s = self.centre + (1 - self.centre) * cosine
        return s if seen is None else torch.where(seen.any(2, keepdim=True), s, 0.0)

    block_evidence, pyramid_evidence = of_patches, of_pyramid

    def at(self, evidence: Patches, support: Support) -> Tensor:
        batch, constants = evidence.x.shape[1], {**self.direct_constants, "J": EXPECTED_AT_ONCE}
        s = torch.empty(len(support.value), dtype=torch.float64, device=self.place)
        direct.at[(batch, self.nodes)](
            samples(evidence.x, evidence.seen), (self.m, self.known), support.start, support.value, s,
            (batch, self.neurons.room, self.size), num_warps=max(1, constants["D"] // 32), **constants,
        )  # fmt: skip
        return s

    def vectors(self, k: Tensor) -> Tensor:
        return self.m[self.node, k.long()]

    def known_values(self, k: Tensor) -> Tensor:
        if self.known is not None:
            return self.known[self.node, k.long()] > 0
        return (self.neurons.c[self.node, k.long()] > 0)[:, :, None].expand(-1, -1, self.size).clone()

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        found = {"prototypes": self.m} if self.known is None else {"prototypes": self.m, "known": self.known}
        return {name: array[self.neurons.slots()].cpu().numpy() for name, array in found.items()}

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        check_prototypes(state, self.size, self.centre)
        enlarge_all(self.neurons.room, (self, self.arrays))
        n, j = torch.nonzero(self.neurons.slots(), as_tuple=True)
        self.m[n, j] = torch.from_numpy(prototypes_of(state, self.centre)).to(self.place)
        if "known" in state:
            self.known = torch.zeros(self.m.shape, dtype=torch.int32, device=self.place)
            self.known[n, j] = torch.from_numpy(state["known"]).to(self.place)
        self.derive(n, j)


def samples(x: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Samples for the kernels: values, which of them were observed, and which samples have any observed (None: all)."""
    return x.contiguous(), *((None, None) if seen is None else (seen.byte().contiguous(), seen.any(2).byte()))
