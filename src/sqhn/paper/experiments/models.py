"""The models that are compared, as declarations that can be recorded and built.

The names of the classes and of their fields are in the records, so renaming one makes old records unusable.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.level import Level
from sqhn.paper.metrics import recall_error
from sqhn.protocol import Memory, Recalled, Recognized, Written
from sqhn.reference import Ablation, ReferenceSQHN, learn_by_map

if TYPE_CHECKING:
    from sqhn.memory import SQHN

__all__ = [
    "GPCN",
    "MHN",
    "Ablated",
    "AblatedTree",
    "AskedTree",
    "BayesPCN",
    "ByErrorTree",
    "ByteStore",
    "DownscaledStore",
    "ErrorRecognition",
    "GradInfMHN",
    "JpegStore",
    "ManhattanMHN",
    "MapTree",
    "Nearest",
    "OnlineMHN",
    "OnlineMHNTree",
    "QuantizedStore",
    "SharedTree",
    "Spec",
    "Tree",
]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Spec:
    """The declaration of a model. needs: the package that it requires, and the requirement that installs it."""

    needs: ClassVar[tuple[str, str]] = ("numba", "sqhn")

    def build(self, shape: Shape, seed: int, device: str) -> Memory:
        """The model for samples of one shape; only models that use torch are placed on the device."""
        raise NotImplementedError

    @property
    def torch(self) -> bool:
        """Whether the model uses torch, and so can run on a GPU."""
        return self.needs[0] == "torch"


# -- the SQHN ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree(Spec):
    """An SQHN with `kernels` below its memory node; one capacity for every node, or one for each level."""

    capacity: int | tuple[int, ...]
    kernels: tuple[int | tuple[int, ...], ...] = ()
    alpha: float = 1e7
    gamma: float = 1.0
    when_full: Literal["average", "overwrite", "oldest", "freeze"] = "average"
    similarity: Literal["shifted_cosine", "cosine", "euclidean"] = "shifted_cosine"
    rho: float | None = None
    propagation: Literal["argmax", "max"] = "argmax"
    mu: Literal["mean", "pseudocount"] = "mean"

    def build(self, shape: Shape, seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        return self.network(shape)

    def network(self, shape: Shape) -> SQHN:
        from sqhn.memory import SQHN  # compiled code is imported on first use

        return SQHN(
            shape, self.levels, similarity=self.similarity, rho=self.rho, propagation=self.propagation, mu=self.mu
        )

    @property
    def levels(self) -> list[Level]:
        """The levels from the input up, with the same settings."""
        capacities = self.capacity if isinstance(self.capacity, tuple) else (self.capacity,) * (len(self.kernels) + 1)
        return [
            Level(kernel, J, alpha=self.alpha, gamma=self.gamma, when_full=self.when_full)
            for kernel, J in zip((*self.kernels, None), capacities, strict=True)
        ]


@dataclass(frozen=True)
class AskedTree(Tree):
    """An SQHN that recalls by another rule than the paper's."""

    inference: Literal["exact", "evidence"] = "evidence"

    def build(self, shape: Shape, seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        return FixedInference(self.network(shape), self.inference)


@dataclass(frozen=True)
class SharedTree(Spec):
    """An SQHN of three levels that recalls by evidence; level 1 has one bank of `codewords` for all places.

    neurons: of every node above, so that none of them averages: when the memory node is full, all levels stop.
    """

    kernels: tuple[int | tuple[int, ...], ...]
    codewords: int
    neurons: int

    def build(self, shape: Shape, seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        from sqhn.memory import SQHN

        first, *others = self.kernels
        levels = [
            Level(first, self.codewords, shared=True, stops=True),
            *(Level(kernel, self.neurons, stops=True) for kernel in others),
            Level(None, self.neurons, when_full="freeze"),
        ]
        return FixedInference(SQHN(shape, levels), "evidence")


@dataclass(frozen=True)
class ByErrorTree(Tree):
    """An SQHN that recognizes by the error of recall."""

    rho_error: float = 0.5

    def build(self, shape: Shape, seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        return ErrorRecognition(self.network(shape), self.rho_error)


@dataclass(frozen=True)
class AblatedTree(Tree):
    """One level without a part of the learning rule."""

    ablation: Ablation = field(default_factory=Ablation)

    def build(self, shape: Shape, seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        return Ablated(ReferenceSQHN(shape, self.levels, self.network(shape).options, self.ablation, seed))


@dataclass(frozen=True)
class MapTree(Tree):
    """A tree with feedback from parents to children during learning (MAP learning)."""

    def build(self, shape: Shape, seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        return MapLearning(ReferenceSQHN(shape, self.levels, self.network(shape).options))


class FixedInference:
    """A memory that always recalls by one rule."""

    def __init__(self, memory: SQHN, inference: str) -> None:
        self.memory, self.inference = memory, inference

    def learn(self, x: ArrayLike) -> Written:
        return self.memory.learn(x)

    def memorize(self, x: ArrayLike) -> None:
        self.memory.memorize(x)

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return self.memory.recall(x, observed, inference=self.inference)

    def recognize(self, x: ArrayLike) -> Recognized:
        return self.memory.recognize(x)


class ErrorRecognition:
    """A memory that recognizes by the error of recall: old if it is at most rho_error times the mean error of samples
    before they were learned.
    """

    def __init__(self, memory: SQHN, rho_error: float) -> None:
        self.memory, self.rho_error = memory, rho_error
        self.count, self.error = 0, 0.0

    def learn(self, x: ArrayLike) -> Written:
        """Learn samples one by one; each is recalled before it is learned."""
        written = []
        for sample in np.asarray(x)[:, None]:
            if len(self.memory):
                self.count += 1
                self.error += (float(self._error(sample)[0]) - self.error) / self.count
            written.append(self.memory.learn(sample))
        return Written(*(np.concatenate(part) for part in zip(*written)))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return self.memory.recall(x, observed)

    def recognize(self, x: ArrayLike) -> Recognized:
        error = self._error(np.asarray(x))
        threshold = np.full(len(error), self.rho_error * self.error)
        return Recognized(error <= threshold, -error, -threshold)

    def _error(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return recall_error(self.memory.recall(x).x, x)


class Ablated:
    """One level that the reference learns and a fast copy of it recalls."""

    def __init__(self, reference: ReferenceSQHN) -> None:
        self.reference = reference

    def learn(self, x: ArrayLike) -> Written:
        return Written(*(np.array(part) for part in zip(*map(self.reference.learn, np.asarray(x)))))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return self._fast_copy().recall(x, observed)

    def recognize(self, x: ArrayLike) -> Recognized:
        return self._fast_copy().recognize(x)

    def _fast_copy(self) -> SQHN:
        from sqhn.memory import SQHN

        root, shape = self.reference.root, self.reference.input_shape
        copy = SQHN(shape, capacity=root.grown, similarity=self.reference.options.similarity)
        copy.memorize(root.m[: root.grown].reshape(-1, *shape))
        return copy


class MapLearning:
    """The reference with feedback during learning."""

    def __init__(self, reference: ReferenceSQHN) -> None:
        self.reference = reference

    def learn(self, x: ArrayLike) -> Written:
        return Written(*(np.array(part) for part in zip(*(learn_by_map(self.reference, one) for one in np.asarray(x)))))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:  # noqa: ARG002
        found = [self.reference.recall(one) for one in np.asarray(x)]
        return Recalled(*(np.array([one[i] for one in found]) for i in range(3)))

    def recognize(self, x: ArrayLike) -> Recognized:
        return Recognized(*(np.array(part) for part in zip(*map(self.reference.recognize, np.asarray(x)))))


# -- baselines ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Baseline(Spec):
    """A model of `sqhn.paper.baselines`; the fields are its settings."""

    needs: ClassVar[tuple[str, str]] = ("torch", "sqhn[torch]")
    baseline: ClassVar[str]
    seeded: ClassVar[bool] = False

    def build(self, shape: Shape, seed: int, device: str) -> Memory:
        from sqhn.paper import baselines

        settings: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.seeded:
            settings["seed"] = seed
        if self.torch:
            settings["device"] = device
        model: Memory = getattr(baselines, self.baseline)(shape, **settings)
        return model


@dataclass(frozen=True)
class MHN(Baseline):
    """The modern Hopfield network; range: of its stored pixels."""

    baseline = "MHN"
    range: Literal["signed", "unit"] = "signed"


@dataclass(frozen=True)
class ManhattanMHN(Baseline):
    """The modern Hopfield network with the Manhattan distance."""

    baseline = "ManhattanMHN"


@dataclass(frozen=True)
class GradInfMHN(Baseline):
    """The modern Hopfield network with descent on its energy."""

    baseline = "GradInfMHN"


@dataclass(frozen=True)
class GPCN(Baseline):
    """Predictive coding, trained offline."""

    baseline, seeded = "GPCN", True
    width: int
    epochs: int
    recall_steps: int


@dataclass(frozen=True)
class BayesPCN(Baseline):
    """Predictive coding, one write per image."""

    baseline, seeded = "BayesPCN", True
    width: int
    recall_steps: int
    forget: float = 0.0
    forget_every: int = 64


@dataclass(frozen=True)
class Online(Baseline):
    """A network trained by one gradient step for every sample."""

    seeded = True
    capacity: int
    beta: float
    rate: float
    optimizer: Literal["sgd", "adam"] = "sgd"
    consolidation: float = 0.0
    replay: int = 0


@dataclass(frozen=True)
class OnlineMHN(Online):
    """An online trained network of one layer."""

    baseline = "OnlineMHN"
    squeeze: tuple[float, float] = (0.99, 0.005)
    recognition: Literal["activity", "error"] = "activity"


@dataclass(frozen=True)
class OnlineMHNTree(Online):
    """An online trained tree."""

    baseline = "OnlineMHNTree"
    kernels: tuple[int, ...] = ()
    variant: Literal["linear", "code"] = "linear"


@dataclass(frozen=True)
class Nearest(Baseline):
    """A store of images that returns the nearest one."""

    needs: ClassVar[tuple[str, str]] = ("numpy", "sqhn")
    baseline, seeded = "NearestNeighbor", True
    capacity: int
    keep: Literal["first_in_first_out", "reservoir"] = "first_in_first_out"
    tolerance: float = 1e-6


@dataclass(frozen=True)
class Coded(Baseline):
    """A store of samples as few bytes, at most `budget` of them."""

    needs: ClassVar[tuple[str, str]] = ("PIL", "sqhn")
    budget: int


@dataclass(frozen=True)
class ByteStore(Coded):
    """A store of plain bytes."""

    baseline, seeded = "ByteStore", True
    keep: Literal["first", "reservoir"] = "first"
    ask: Literal["nearest", "evidence"] = "evidence"


@dataclass(frozen=True)
class DownscaledStore(Coded):
    """A store of smaller pictures."""

    baseline = "DownscaledStore"
    factor: int


@dataclass(frozen=True)
class JpegStore(Coded):
    """A store of JPEGs, each of the smallest quality within `limit`."""

    baseline = "JpegStore"
    limit: float = 0.01
    header: bool = True


@dataclass(frozen=True)
class QuantizedStore(Coded):
    """Product quantization by FAISS, trained with the whole stream."""

    needs: ClassVar[tuple[str, str]] = ("faiss", "faiss-cpu")
    baseline = "QuantizedStore"
    width: int
    bits: int
