"""Memories that keep the samples themselves: the one-shot memories of the paper's Table 1, and the nearest neighbour.

All are one store of rows with a rule that says what a query finds there. Writing is one row; reading compares the query
with every row. Samples are in [0, 1] at the door, whatever range a rule has inside. The modern Hopfield networks need
torch; `NearestNeighbor` needs only NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word
from sqhn.inputs import as_answers, as_floats, as_samples, batches, join_batches
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.reservoir import Reservoir
from sqhn.paper.baselines.training import load_torch
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MHN", "GradInfMHN", "ManhattanMHN", "NearestNeighbor"]

CHUNK = 256

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Missing = Literal["fill", "ignore"]
Keep = Literal["first_in_first_out", "reservoir"]


class Store:
    """Rows, one for each sample kept; at most `capacity` of them, if there is one.

    keep: what a full store keeps: the latest samples, or each of all it has met with the same probability.
    """

    def __init__(
        self, width: int, capacity: int | None = None, keep: Keep = "first_in_first_out", seed: int = 0
    ) -> None:
        check_word("keep", keep, ("first_in_first_out", "reservoir"))
        self.capacity, self.keep = capacity, keep
        self._seed = seed
        self._room = np.empty((0, width), np.float32)
        self.reset()

    def reset(self) -> None:
        self._room = np.empty((0, self._room.shape[1]), np.float32)
        self._reservoir = Reservoir(self.capacity or 0, self._seed)
        self.met = 0

    def __len__(self) -> int:
        return self.met if self.capacity is None else min(self.met, self.capacity)

    @property
    def rows(self) -> Array:
        return self._room[: len(self)]

    def write(self, new: Array) -> NDArray[np.int32]:
        """Keep samples one after another; the row of each, or -1 for one that was passed over."""
        slots = np.array([self._slot(t) for t in range(self.met, self.met + len(new))], np.int32)
        self.met += len(new)
        if len(self) > len(self._room):
            size = max(len(self), 2 * len(self._room))
            size = size if self.capacity is None else min(size, self.capacity)
            room = np.empty((size, new.shape[1]), np.float32)
            room[: len(self._room)] = self._room
            self._room = room
        self._room[slots[slots >= 0]] = new[slots >= 0]  # of several for one row, the last stays
        return slots

    def _slot(self, t: int) -> int:
        """The row of the sample that t others came before."""
        if self.capacity is None:
            return t
        return self._reservoir.place() if self.keep == "reservoir" else t % self.capacity


class Rule(Protocol):
    """What makes these memories differ. Samples and rows are flat; `x` is in [0, 1] and black where not `seen`."""

    @property
    def at_once(self) -> int | None:
        """How many queries are answered together; None: the whole batch."""

    def inside(self, x: Array) -> Array:
        """Samples as the rule keeps them."""

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        """How well each of some samples, as the rule keeps them, matches each row."""

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        """What queries find in the rows."""


class StoredSamples:
    """The verbs, for a store and a rule."""

    cannot: ClassVar[Mapping[str, str]] = {"recognize": "it is defined for recall only"}  # see `sqhn.testing`

    def __init__(self, input_shape: Sequence[int], rule: Rule, capacity: int | None = None, **keep: Any) -> None:
        self.input_shape = as_shape(input_shape)
        self._rule = rule
        self._store = Store(math.prod(self.input_shape), capacity, **keep)

    def __len__(self) -> int:
        """How many samples are kept."""
        return len(self._store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_shape}, {len(self)} samples)"

    def reset(self) -> None:
        """Forget everything."""
        self._store.reset()

    def learn(self, x: ArrayLike) -> Written:
        """Keep one sample, or a batch one after another.

        Returns the row (-1: passed over), whether the sample was kept, and its best match among those kept before it.
        """
        samples, single, _ = as_samples(x, self.input_shape)
        new = self._rule.inside(_flat(samples))
        index, score = join_batches([self._learn(new[part]) for part in batches(len(new), CHUNK)])
        step = np.arange(self._store.met - len(index), self._store.met) + 1
        return Written(*as_answers(single, index, index >= 0, score, step))

    def _learn(self, new: Array) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Everything is compared at once; then `held` follows which sample is in which row as time goes on."""
        old = self._store.rows
        similarity = np.hstack([self._rule.similarity(new, rows) for rows in (old, new)])
        held, count = np.arange(similarity.shape[1]), len(old)
        slots = self._store.write(new)
        best = np.full(len(new), -np.inf)
        for number, slot in enumerate(slots):
            best[number] = similarity[number, held[:count]].max(initial=-np.inf)
            if slot >= 0:
                held[slot] = len(old) + number
                count = max(count, slot + 1)
        return slots, best

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """What x reminds of.

        observed: True where a value was seen; of x's shape, or of one sample's shape for all. Values elsewhere do not
            matter.
        """
        samples, single, mask = as_samples(x, self.input_shape, observed, holes=True)
        if not len(self):
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        flat, seen = _flat(samples), None
        if mask is not None:
            seen = mask.reshape(flat.shape)
            flat = np.where(seen, flat, np.float32(0))
        done = [
            self._rule.recall(flat[part], None if seen is None else seen[part], self._store.rows)
            for part in batches(len(flat), self._rule.at_once or len(flat))
        ]
        found, index, score = join_batches([one[:3] for one in done])
        return Recalled(*as_answers(single, found.reshape(samples.shape), index, score))

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Not a verb of these memories: no paper says how one that was not trained tells old from new."""
        raise UnsupportedError(f"{type(self).__name__} cannot recognize: it is defined for recall only")


class MHN(StoredSamples):
    """The modern Hopfield network of Ramsauer et al. (2021): one step, softmax(beta <row, x>) times the rows.

    beta: 10,000 is the SQHN paper's; it leaves the row with the largest inner product. No norm is divided by, so bright
        or contrasty rows win more than their share.
    missing: values that were not observed are black ("fill", the SQHN paper's) or left out of the product ("ignore").
    range: the samples inside are in [-1, 1] ("signed"), which gives the figures of the SQHN paper, or in [0, 1]
        ("unit").
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        beta: float = 10_000.0,
        missing: Missing = "fill",
        range: Literal["signed", "unit"] = "signed",  # noqa: A002
        device: str = "cpu",
    ) -> None:
        check_word("range", range, ("signed", "unit"))
        super().__init__(input_shape, Softmax(check_number("beta", beta), _ignores(missing), range == "signed", device))


class ManhattanMHN(StoredSamples):
    """The universal Hopfield network of Millidge et al. (2022) with the Manhattan distance: the nearest row wins.

    missing: values that were not observed are black ("fill", the SQHN paper's) or not compared ("ignore").
    """

    def __init__(self, input_shape: Sequence[int], missing: Missing = "fill", device: str = "cpu") -> None:
        super().__init__(input_shape, Manhattan(_ignores(missing), device))


class GradInfMHN(StoredSamples):
    """MHN-GradInf of Yoo & Wood (2022): every row is a narrow Gaussian, and a query climbs their mixture with Adam.

    The energy of x, in [-1, 1], is -log sum_i exp(w_i - |x - m_i|^2 / (2 sigma^2)) up to a constant. The batch stops
    together, after `steps` at the latest, when no energy changed by more than 0.001. Missing values start black; values
    that were observed stay what they are. Without a mask all values move.

    Scores are minus the energies of the queries as given. A query can change its mind on the way: when its missing
    values have come closer to one row, the observed ones may tell against it.

    metric: "dot" gives larger rows more weight, w_i = |m_i|^2 / sigma, as the authors' code does (an inner product only
        for sigma = 1/2); "euclidean" gives all the same.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **StoredSamples.cannot,
        "from half": "missing values start black and come close to a row",
        "answers one by one": "a batch stops together, when its last query is calm",
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        sigma: float = 0.01,
        steps: int = 500,
        rate: float = 0.01,
        metric: Literal["dot", "euclidean"] = "dot",
        device: str = "cpu",
    ) -> None:
        check_word("metric", metric, ("dot", "euclidean"))
        sigma, rate = check_number("sigma", sigma), check_number("rate", rate)
        super().__init__(input_shape, Gradient(sigma, check_count("steps", steps), rate, metric == "dot", device))


class NearestNeighbor(StoredSamples):
    """What one would write without any theory: keep samples, return the one at the smallest Euclidean distance.

    keep: a full store keeps the latest samples ("first_in_first_out") or a uniform choice of all ("reservoir").
    tolerance: `recognize` calls a sample old if its mean squared error to the nearest one kept is at most this. The
        default forgives rounding and nothing else.

    Only what was observed is compared. Scores are mean squared errors, negative.

    >>> memory = NearestNeighbor((2,), capacity=2)
    >>> memory.learn(np.array([[0.1, 0.9], [0.2, 0.7], [0.8, 0.6]])).index
    array([0, 1, 0], dtype=int32)
    >>> memory.recall(np.array([0.7, np.nan]), observed=np.array([True, False])).x
    array([0.8, 0.6], dtype=float32)
    >>> memory.recognize(np.array([0.2, 0.7])).old, memory.recognize(np.array([0.1, 0.9])).old
    (True, False)
    """

    cannot: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        input_shape: Sequence[int],
        capacity: int,
        keep: Keep = "first_in_first_out",
        seed: int = 0,
        tolerance: float = 1e-6,
    ) -> None:
        self.tolerance = check_number("tolerance", tolerance)
        super().__init__(input_shape, Euclidean(), check_count("capacity", capacity), keep=keep, seed=seed)

    def recognize(self, x: ArrayLike) -> Recognized:
        """Was this sample kept? Old if one within the tolerance is."""
        samples, single, _ = as_samples(x, self.input_shape)
        score = self.recall(samples).score if len(self) else np.full(len(samples), -np.inf)
        threshold = np.full(len(samples), -self.tolerance)
        return Recognized(*as_answers(single, score >= threshold, score, threshold))


# -- rules -----------------------------------------------------------------------------------------------------------


class Softmax:
    """Inner products in float64: beta magnifies their rounding."""

    at_once = CHUNK

    def __init__(self, beta: float, ignore: bool, signed: bool, device: str) -> None:
        self.beta, self.ignore, self.signed = beta, ignore, signed
        self.load = _loader(device)

    def inside(self, x: Array) -> Array:
        return _signed(x) if self.signed else x

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        return _numpy(self.load(x).double() @ self.load(rows).double().T)

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        query = self.inside(x)
        product = self.similarity(query * seen if self.ignore and seen is not None else query, rows)
        weight = (self.beta * self.load(product)).softmax(dim=1).float()
        found = _numpy(weight @ self.load(rows))
        index = product.argmax(axis=1).astype(np.int32)
        return Recalled(_unit(found) if self.signed else found, index, product.max(axis=1))


class Manhattan:
    """Where black stands for a value not seen, it adds |row|, which is taken off again if it is to be ignored."""

    at_once = CHUNK

    def __init__(self, ignore: bool, device: str) -> None:
        self.ignore = ignore
        self.load = _loader(device)

    def inside(self, x: Array) -> Array:
        return x

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        return -self._distance(x, rows, None).astype(np.float64)

    def _distance(self, x: Array, rows: Array, seen: Mask | None) -> Array:
        import torch

        query, row = self.load(x), self.load(rows)
        distance = torch.cdist(query, row, p=1)
        if seen is not None:
            distance -= self.load(~seen).float() @ row.abs().T
        return _numpy(distance)

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        compared = seen if self.ignore else None
        size = np.abs(x).sum(axis=1) + 2 * np.abs(rows).sum(axis=1).max()

        def exact(query: int, near: NDArray[np.intp]) -> NDArray[np.float64]:
            apart = np.abs(x[query] - rows[near].astype(np.float64))
            return np.asarray((apart if compared is None else apart * compared[query]).sum(axis=1))

        index, distance = _nearest(self._distance(x, rows, compared), _rounding(x.shape[1]) * size, exact)
        return Recalled(rows[index], index, -distance)


class Euclidean:
    """Squared distances by products, and the closest again by differences. NumPy only."""

    at_once = CHUNK

    def inside(self, x: Array) -> Array:
        return x

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        return np.asarray(-np.maximum(0.0, self._distance(x, rows, None).astype(np.float64)) / x.shape[1])

    def _distance(self, x: Array, rows: Array, seen: Mask | None) -> Array:
        """x is 0 where not seen; there the rows must not count either."""
        own, others = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", rows, rows)
        if seen is not None:
            others = seen.astype(np.float32) @ np.square(rows).T
        return np.asarray(own[:, None] - 2 * (x @ rows.T) + others)

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        size = np.square(np.linalg.norm(x, axis=1) + np.linalg.norm(rows, axis=1).max())

        def exact(query: int, near: NDArray[np.intp]) -> NDArray[np.float64]:
            apart = np.square(x[query] - rows[near].astype(np.float64))
            return np.asarray((apart if seen is None else apart * seen[query]).sum(axis=1))

        index, distance = _nearest(self._distance(x, rows, seen), _rounding(x.shape[1]) * size, exact)
        compared = x.shape[1] if seen is None else np.maximum(1, seen.sum(axis=1))
        return Recalled(rows[index], index, -distance / compared)


class Gradient:
    """Adam on the pixels; `Walk` says how it avoids most of the cost."""

    at_once = None  # the batch stops together
    CALM = 1e-3

    def __init__(self, sigma: float, steps: int, rate: float, dot: bool, device: str) -> None:
        self.variance, self.steps, self.rate = sigma**2, steps, rate
        self.half = 0.5 - sigma if dot else 0.5  # of |m_i|^2; less what the weight w_i gives
        self.load = _loader(device)

    def inside(self, x: Array) -> Array:
        return _signed(x)

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        row = self.load(rows).double()
        return _numpy(self.exponents(self.load(x).double(), row, row.square().sum(dim=1)))

    def exponents(self, x: Tensor, rows: Tensor, squares: Tensor) -> Tensor:
        """Those of the energy, w_i - |x - m_i|^2 / (2 sigma^2), for rows and their squared lengths."""
        return (x @ rows.T - self.half * squares - x.square().sum(dim=1, keepdim=True) / 2) / self.variance

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        free = None if seen is None else self.load(~seen).float()
        walk = Walk(self.load(self.inside(x)), free, self.load(rows), self)
        energy = first = walk.energy()
        for _ in range(self.steps):
            walk.step()
            before, energy = energy, walk.energy()
            if bool(((energy - before).abs() <= self.CALM).all()):
                break
        found = _unit(_numpy(walk.x))
        if seen is not None:
            found = np.where(seen, x, found)  # to the last bit
        return Recalled(found, _numpy(walk.index).astype(np.int32), -_numpy(first))


class Walk:
    """Queries on their way down the energy, with Adam (Kingma & Ba, 2015).

    The gradient is (x - sum_i p_i m_i) / S with S = sigma^2 and p the softmax of the exponents. Where the largest leads
    by more than `ZERO`, every other p_i is 0 in float32: one row alone draws x. Differences of exponents are linear in
    x, so that the lead over row i cannot be lost before x has moved by lead * S / |m - m_i| (counted where x is free to
    move). Only a query that has moved so far looks at all rows again: the steps are those of looking every time.
    """

    TOGETHER = 64  # queries that move together: what they need should fit into a cache
    ZERO = 105.0  # exp(-105) is 0 in float32
    SHORT = 0.999  # of a reach, against rounding

    def __init__(self, x: Tensor, free: Tensor | None, rows: Tensor, rule: Gradient) -> None:
        import torch

        self.rule, self.rows, self.wide = rule, rows, rows.double()
        self.squares = self.wide.square()
        self.lengths = self.squares.sum(dim=1)
        self.x, self.free = x.clone(), free
        self.index = torch.full((len(x),), -1, device=x.device)
        self.target, self.origin = torch.empty_like(x), torch.empty_like(x)  # what draws x; from where it last looked
        self.gradient, self.mean, self.square = x.new_zeros((3, *x.shape))  # times S, S and S^2
        self.square += 1e-30  # as good as 0, whose root takes longer
        self.apart = x.new_empty((len(x), len(rows)))  # where x is free: its row from the others
        self.moved, self.reach, self.away = x.new_zeros((3, len(x)))
        self.level = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        self.steps = 0
        self._look()

    def energy(self) -> Tensor:
        pulled: Tensor = self.away.double().square() / (2 * self.rule.variance)
        return self.level + pulled

    def step(self) -> None:
        import torch

        self.steps += 1
        unbias = math.sqrt(1 - 0.999**self.steps)
        epsilon, rate = 1e-8 * self.rule.variance * unbias, self.rule.rate * unbias / (1 - 0.9**self.steps)
        for part in batches(len(self.x), self.TOGETHER):
            x, gradient, mean, square = self.x[part], self.gradient[part], self.mean[part], self.square[part]
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            x.addcdiv_(mean, torch.sqrt(square, out=gradient).add_(epsilon), value=-rate)
            self.moved[part] = torch.sub(x, self.origin[part], out=gradient).norm(dim=1)
            self._pull(part)
        self._look()

    def _pull(self, part: slice | Tensor) -> None:
        """The gradient; values that are not free have none, and so never move."""
        gradient = self.x[part] - self.target[part]
        if self.free is not None:
            gradient *= self.free[part]
        self.gradient[part], self.away[part] = gradient, gradient.norm(dim=1)

    def _look(self) -> None:
        """Compare queries that may have lost their lead with all rows."""
        doubtful = (self.moved >= self.reach).nonzero()[:, 0]
        for part in batches(len(doubtful), CHUNK):
            some = doubtful[part]
            exponents = self.rule.exponents(self.x[some].double(), self.wide, self.lengths)
            best, index = exponents.max(dim=1)
            self._measure(some[index != self.index[some]], index[index != self.index[some]])
            lead = (best[:, None] - exponents - self.ZERO) * self.rule.variance
            lead.div_(self.apart[some]).scatter_(1, index[:, None], math.inf)
            self.reach[some] = (self.SHORT * lead.amin(dim=1)).float()
            self.origin[some], self.moved[some], self.index[some] = self.x[some], 0.0, index
            self.target[some] = self.rows[index]
            torn = self.reach[some] <= 0
            self.target[some[torn]] = exponents[torn].softmax(dim=1).float() @ self.rows
            self._pull(some)
            self.level[some] = 0.0
            self.level[some] = -exponents.logsumexp(dim=1) - self.energy()[some]

    def _measure(self, some: Tensor, index: Tensor) -> None:
        """How far the new rows of queries are from the others."""
        own, others = self.wide[index], self.lengths
        if self.free is not None:
            own, others = own * self.free[some], self.free[some].double() @ self.squares.T
        square = own.square().sum(dim=1, keepdim=True) - 2 * own @ self.wide.T + others
        self.apart[some] = (square.clamp(min=0) + 1e-8).sqrt().float()  # rather too far than too near


# -- small parts -----------------------------------------------------------------------------------------------------


def _nearest(
    rough: Array, error: Array, exact: Callable[[int, NDArray[np.intp]], NDArray[np.float64]]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The first row at the smallest distance: whatever rounding cannot tell apart is measured again in float64."""
    index, distance = np.empty(len(rough), np.int32), np.empty(len(rough))
    for query, line in enumerate(rough):
        near = np.flatnonzero(line <= line.min() + error[query])
        again = exact(query, near)
        index[query], distance[query] = near[again.argmin()], again.min()
    return index, distance


def _rounding(terms: int) -> float:
    """By how much the difference of two float32 sums can be off, as a share of their size; doubled, to be safe."""
    return 4 * (terms + 4) * 2.0**-24


def _loader(device: str) -> Callable[[NDArray[Any]], Tensor]:
    """Arrays to tensors on a device."""
    return partial(_tensor, load_torch().device(device))


def _tensor(device: Any, array: NDArray[Any]) -> Tensor:
    tensor: Tensor = load_torch().as_tensor(array if array.flags.writeable else array.copy(), device=device)
    return tensor


def _numpy(tensor: Tensor) -> NDArray[Any]:
    return np.asarray(tensor.cpu().numpy())


def _flat(samples: NDArray[Any]) -> Array:
    """Samples as rows."""
    return as_floats(samples).reshape(len(samples), -1)


def _signed(x: Array) -> Array:
    return 2 * x - 1


def _unit(x: Array) -> Array:
    return np.asarray((x + 1) / 2, np.float32)


def _ignores(missing: str) -> bool:
    check_word("missing", missing, ("fill", "ignore"))
    return missing == "ignore"
