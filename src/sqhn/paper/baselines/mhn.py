"""One-shot modern Hopfield networks, the baselines of the paper's Table 1: models that store the samples.

They need torch, which is imported when one is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_count, check_number, check_word
from sqhn.inputs import batches
from sqhn.paper.baselines.store import QUERIES_PER_BATCH, Array, Mask, StoredSamples, nearest_rows, rounding_error
from sqhn.paper.baselines.training import load_torch
from sqhn.protocol import Recalled

if TYPE_CHECKING:
    from torch import Tensor


Missing = Literal["fill", "ignore"]


class MHN(StoredSamples):
    """The modern Hopfield network of Ramsauer et al. (2021): one step, softmax(beta <row, x>) times the rows.

    beta: the paper's 10,000 selects the row with the largest inner product. Products are not normalized, so bright rows
        and rows of high contrast win more often than others.
    missing: missing values are black ("fill", as in the SQHN paper) or left out of the product ("ignore").
    range: the stored samples are in [-1, 1] ("signed"), which gives the numbers of the SQHN paper, or in [0, 1]
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
        super().__init__(input_shape, Softmax(check_number("beta", beta), ignores(missing), range == "signed", device))


class ManhattanMHN(StoredSamples):
    """The universal Hopfield network of Millidge et al. (2022) with the Manhattan distance: the nearest row wins.

    missing: missing values are black ("fill", as in the SQHN paper) or not compared ("ignore").
    """

    def __init__(self, input_shape: Sequence[int], missing: Missing = "fill", device: str = "cpu") -> None:
        super().__init__(input_shape, Manhattan(ignores(missing), device))


class GradInfMHN(StoredSamples):
    """MHN-GradInf of Yoo & Wood (2022): every row is a narrow Gaussian, and a query climbs their mixture with Adam.

    The energy of x, in [-1, 1], is -log sum_i exp(w_i - |x - m_i|^2 / (2 sigma^2)) up to a constant. The whole batch
    stops when no energy changed by more than 0.001, after `steps` steps at the latest. Missing values start black;
    observed values stay fixed. Without a mask all values move.

    Scores are minus the energies of the queries as given. A query can end at another row than the one it first moves
    to: once its missing values have come closer to that row, the observed ones may fit another one better.

    metric: "dot" gives larger rows more weight, w_i = |m_i|^2 / sigma, as the authors' code does (an inner product only
        for sigma = 1/2); "euclidean" gives all rows the same weight.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **StoredSamples.cannot,
        "from half": "missing values start black and come close to a row",
        "answers one by one": "a batch stops together, when the last of its queries is at rest",
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
        super().__init__(input_shape, EnergyDescent(sigma, check_count("steps", steps), rate, metric == "dot", device))


# -- rules -------------------------------------------------------------------------------------------------------------


class Softmax:
    """Inner products in float64, because beta magnifies their rounding errors."""

    batch_size = QUERIES_PER_BATCH

    def __init__(self, beta: float, ignore: bool, signed: bool, device: str) -> None:
        self.beta, self.ignore, self.signed = beta, ignore, signed
        self.load = loader(device)

    def inside(self, x: Array) -> Array:
        return to_signed(x) if self.signed else x

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        return to_numpy(self.load(x).double() @ self.load(rows).double().T)

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        query = self.inside(x)
        product = self.similarity(query * seen if self.ignore and seen is not None else query, rows)
        weight = (self.beta * self.load(product)).softmax(dim=1).float()
        found = to_numpy(weight @ self.load(rows))
        index = product.argmax(axis=1).astype(np.int32)
        return Recalled(to_unit(found) if self.signed else found, index, product.max(axis=1))


class Manhattan:
    """Manhattan distances; a black missing value adds |row|, which is subtracted where missing values are ignored."""

    batch_size = QUERIES_PER_BATCH

    def __init__(self, ignore: bool, device: str) -> None:
        self.ignore = ignore
        self.load = loader(device)

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
        return to_numpy(distance)

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        compared = seen if self.ignore else None
        size = np.abs(x).sum(axis=1) + 2 * np.abs(rows).sum(axis=1).max()

        def exact(query: int, near: NDArray[np.intp]) -> NDArray[np.float64]:
            gap = np.abs(x[query] - rows[near].astype(np.float64))
            return np.asarray((gap if compared is None else gap * compared[query]).sum(axis=1))

        index, distance = nearest_rows(self._distance(x, rows, compared), rounding_error(x.shape[1]) * size, exact)
        return Recalled(rows[index], index, -distance)


class EnergyDescent:
    """Adam on the values of a query; `Walk` avoids most of the cost."""

    batch_size = None  # the batch stops together
    ENERGY_TOLERANCE = 1e-3

    def __init__(self, sigma: float, steps: int, rate: float, dot: bool, device: str) -> None:
        self.variance, self.steps, self.rate = sigma**2, steps, rate
        self.half = 0.5 - sigma if dot else 0.5  # the factor of |m_i|^2, less the share of the weight w_i
        self.load = loader(device)

    def inside(self, x: Array) -> Array:
        return to_signed(x)

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        row = self.load(rows).double()
        return to_numpy(self.exponents(self.load(x).double(), row, row.square().sum(dim=1)))

    def exponents(self, x: Tensor, rows: Tensor, squares: Tensor) -> Tensor:
        """The exponents of the energy, w_i - |x - m_i|^2 / (2 sigma^2), for rows and their squared lengths."""
        return (x @ rows.T - self.half * squares - x.square().sum(dim=1, keepdim=True) / 2) / self.variance

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        free = None if seen is None else self.load(~seen).float()
        walk = Walk(self.load(self.inside(x)), free, self.load(rows), self)
        energy = first = walk.energy()
        for _ in range(self.steps):
            walk.step()
            before, energy = energy, walk.energy()
            if bool(((energy - before).abs() <= self.ENERGY_TOLERANCE).all()):
                break
        found = to_unit(to_numpy(walk.x))
        if seen is not None:
            found = np.where(seen, x, found)  # observed values come back bit for bit
        return Recalled(found, to_numpy(walk.index).astype(np.int32), -to_numpy(first))


class Walk:
    """The descent of queries on the energy, with Adam (Kingma & Ba, 2015).

    The gradient is (x - sum_i p_i m_i) / S with S = sigma^2 and p the softmax of the exponents. Where the largest
    exponent leads by more than `NEGLIGIBLE`, every other p_i is 0 in float32, and one row alone attracts x. Differences
    of exponents are linear in x, so the lead over row i cannot be lost before x has moved by lead * S / |m - m_i|
    (counting free values only). Only a query that has moved that far is compared with all rows again: the steps are
    the same as if it were compared every time.
    """

    QUERIES_PER_STEP = 64  # queries that move together: their arrays should fit into a cache
    NEGLIGIBLE = 105.0  # exp(-105) is 0 in float32
    SAFETY = 0.999  # factor of the reach, against rounding

    def __init__(self, x: Tensor, free: Tensor | None, rows: Tensor, rule: EnergyDescent) -> None:
        import torch

        self.rule, self.rows, self.wide = rule, rows, rows.double()
        self.squares = self.wide.square()
        self.lengths = self.squares.sum(dim=1)
        self.x, self.free = x.clone(), free
        self.index = torch.full((len(x),), -1, device=x.device)
        self.target, self.origin = torch.empty_like(x), torch.empty_like(x)  # attractor; place of the last comparison
        self.gradient, self.mean, self.square = x.new_zeros((3, *x.shape))  # times S, S and S^2
        self.square += 1e-30  # practically 0, but its root is computed faster
        self.gaps = x.new_empty((len(x), len(rows)))  # distances of its row from the others, over free values
        self.moved, self.reach, self.distance = x.new_zeros((3, len(x)))
        self.level = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        self.steps = 0
        self._compare()

    def energy(self) -> Tensor:
        pull: Tensor = self.distance.double().square() / (2 * self.rule.variance)
        return self.level + pull

    def step(self) -> None:
        import torch

        self.steps += 1
        unbias = math.sqrt(1 - 0.999**self.steps)
        epsilon, rate = 1e-8 * self.rule.variance * unbias, self.rule.rate * unbias / (1 - 0.9**self.steps)
        for part in batches(len(self.x), self.QUERIES_PER_STEP):
            x, gradient, mean, square = self.x[part], self.gradient[part], self.mean[part], self.square[part]
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            x.addcdiv_(mean, torch.sqrt(square, out=gradient).add_(epsilon), value=-rate)
            self.moved[part] = torch.sub(x, self.origin[part], out=gradient).norm(dim=1)
            self._pull(part)
        self._compare()

    def _pull(self, part: slice | Tensor) -> None:
        """The gradient; it is 0 for values that are not free, so they never move."""
        gradient = self.x[part] - self.target[part]
        if self.free is not None:
            gradient *= self.free[part]
        self.gradient[part], self.distance[part] = gradient, gradient.norm(dim=1)

    def _compare(self) -> None:
        """Compare queries that may have lost their lead with all rows."""
        doubtful = (self.moved >= self.reach).nonzero()[:, 0]
        for part in batches(len(doubtful), QUERIES_PER_BATCH):
            some = doubtful[part]
            exponents = self.rule.exponents(self.x[some].double(), self.wide, self.lengths)
            best, index = exponents.max(dim=1)
            self._measure(some[index != self.index[some]], index[index != self.index[some]])
            lead = (best[:, None] - exponents - self.NEGLIGIBLE) * self.rule.variance
            lead.div_(self.gaps[some]).scatter_(1, index[:, None], math.inf)
            self.reach[some] = (self.SAFETY * lead.amin(dim=1)).float()
            self.origin[some], self.moved[some], self.index[some] = self.x[some], 0.0, index
            self.target[some] = self.rows[index]
            torn = self.reach[some] <= 0
            self.target[some[torn]] = exponents[torn].softmax(dim=1).float() @ self.rows
            self._pull(some)
            self.level[some] = 0.0
            self.level[some] = -exponents.logsumexp(dim=1) - self.energy()[some]

    def _measure(self, some: Tensor, index: Tensor) -> None:
        """Set the distances of the new rows of some queries from the other rows."""
        own, others = self.wide[index], self.lengths
        if self.free is not None:
            own, others = own * self.free[some], self.free[some].double() @ self.squares.T
        square = own.square().sum(dim=1, keepdim=True) - 2 * own @ self.wide.T + others
        self.gaps[some] = (square.clamp(min=0) + 1e-8).sqrt().float()  # rather too large than too small


# -- tensors -----------------------------------------------------------------------------------------------------------


def loader(device: str) -> Callable[[NDArray[Any]], Tensor]:
    """A function that loads arrays as tensors on a device."""
    return partial(to_tensor, load_torch().device(device))


def to_tensor(device: Any, array: NDArray[Any]) -> Tensor:
    """An array on a device."""
    tensor: Tensor = load_torch().as_tensor(array if array.flags.writeable else array.copy(), device=device)
    return tensor


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A tensor as an array."""
    return np.asarray(tensor.cpu().numpy())


def to_signed(x: Array) -> Array:
    """Values in [0, 1] as values in [-1, 1]."""
    return 2 * x - 1


def to_unit(x: Array) -> Array:
    """Values in [-1, 1] as values in [0, 1]."""
    return np.asarray((x + 1) / 2, np.float32)


def ignores(missing: str) -> bool:
    """Whether missing values are ignored, not filled in."""
    check_word("missing", missing, ("fill", "ignore"))
    return missing == "ignore"
