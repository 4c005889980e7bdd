"""Trees whose nodes are on several shards, each on a GPU, are the same as in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.banks.ray.nodes import Nodes
from tests.by_evidence import NEAR
from tests.conformance.test_stories import SHAPES, SIMILARITIES, same_in_all, story, tell, told_and_saved
from tests.helpers import cluster, fingerprint, model_of
from tests.ray.test_ray import SHAPE, TREE, fail_in_the_last_shard, kill, stream
from tests.ray.test_stories import as_in_one_place

Local = Callable[..., None]
TREES = [name for name, (_, kernels) in SHAPES.items() if len(kernels) > 1]


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", TREES)
def test_one_story(name: str, similarity: Any, shards: int, device: str, local: Local, tmp_path: Path) -> None:
    local(shards)
    when_full = ["average", "overwrite", "oldest", "freeze"][(shards + len(name)) % 4]
    told_and_saved(name, similarity, when_full, f"ray:{device}", tmp_path / "m")


@pytest.mark.parametrize("name", TREES)
def test_shards_that_are_lost(name: str, device: str, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    local(3, every=20)
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 2000)
    memory, reference, rng = story(name, "shifted_cosine", "oldest", f"ray:{device}")
    tell(memory, reference, rng, 6)
    same_in_all(memory, reference, rng)
    assert memory.banks[0].device.start().transport.lost  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("inference", ["evidence", "exact", "feedforward"])
def test_rules_of_recall(inference: Any, name: str, device: str, local: Local) -> None:
    local(2)
    as_in_one_place(*story(name, "shifted_cosine", "average", f"ray:{device}"), inference, NEAR)


@pytest.mark.parametrize("kind", ["patterns", "codes"])
def test_read_only_arrays(kind: str, device: str) -> None:
    """Ray delivers such arrays; a bank is built and restored from them without a warning of torch."""
    torch = pytest.importorskip("torch")
    tree = model_of(SQHN((8, 8), [Level(2, 9), Level(2, 9), Level(capacity=9)])).tree
    children = tree.tilings[1].children()
    children.setflags(write=False)
    made: dict[str, Any] = {"patterns": (tree.tilings[0],), "codes": (children,)}
    reserved = {"patterns": [4], "codes": [4, 9]}[kind]
    torch.set_warn_always(True)
    try:
        one, other = (
            Nodes(device, kind, *made[kind], tree.levels[0], tree.options, False, *reserved[1:]) for _ in range(2)
        )
        state = one.state() | {"reserved": np.array(reserved)}
        for array in state.values():
            array.setflags(write=False)
        other.restore(state)
    finally:
        torch.set_warn_always(False)
    assert other.bank.neurons.room >= 4


@pytest.fixture(scope="module")
def on_ray() -> Iterator[Any]:
    """Ray itself, on a machine with a GPU."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU that torch can use")
    with cluster() as ray:
        yield ray


def test_shards_that_are_killed(on_ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards on one GPU, or each on its own: the same bits as if nothing had happened, and as in one place."""
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 50_000)
    one, many = SQHN(SHAPE, TREE), SQHN(SHAPE, TREE, device="ray:cuda", shards=2)
    x, rng = stream(300), np.random.default_rng(0)
    for i in range(6):
        kill(many, int(rng.integers(2)), for_good=bool(i % 2))
        for a, b in zip(one.learn(x[50 * i : 50 * i + 50])[:2], many.learn(x[50 * i : 50 * i + 50])[:2]):
            np.testing.assert_array_equal(a, b)
    assert_alike(many, one)
    np.testing.assert_array_equal(many.recall(x).x, one.recall(x).x)
    before = fingerprint(many)
    many.reset()
    many.learn(x)
    assert fingerprint(many) == before
    many.resize(90)
    many.reset()
    assert (len(many), many.capacity, many.shards) == (0, 90, 2)
    many.learn(x)
    larger = SQHN(SHAPE, [TREE[0], Level(capacity=90)])
    larger.learn(x)
    assert_alike(many, larger)


def assert_alike(memory: SQHN, other: SQHN) -> None:
    """The same, except for the last bits of mean activities, which a GPU adds up in another order."""
    for bank, its in zip(memory.banks, other.banks):
        states = [one.neurons.state() | one.state() for one in (bank, its)]
        assert states[0].keys() == states[1].keys()
        for name, array in states[0].items():
            np.testing.assert_allclose(array, states[1][name], rtol=0, atol=1e-9 if name == "mu" else 0)


def test_an_error_in_a_shard_changes_nothing(on_ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new shard replaces the failed one, on the same GPU if there is no other."""
    memory, one = SQHN(SHAPE, TREE, device="ray:cuda", shards=1), SQHN(SHAPE, TREE)
    fail_in_the_last_shard(memory, one, monkeypatch)
    assert_alike(memory, one)


def test_gpus_in_use_by_another_memory(on_ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs of a deleted memory are free again after a while; those of a live one are not."""
    gpus = int(on_ray.cluster_resources()["GPU"])
    memory = SQHN(SHAPE, TREE, device="ray:cuda", shards=gpus)
    with monkeypatch.context() as patch:
        patch.setattr("sqhn.banks.ray.actors.GPU_SECONDS", 1.0)
        with pytest.raises(RuntimeError, match=f"shards={gpus} need {gpus} GPUs, but of {gpus} only 0 are free"):
            SQHN(SHAPE, TREE, device="ray:cuda", shards=gpus)
    memory.learn(stream(20))
    del memory
    assert SQHN(SHAPE, TREE, device="ray:cuda", shards=3 * gpus).shards == 3 * gpus
