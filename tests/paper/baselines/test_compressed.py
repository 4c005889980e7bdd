"""Stores of codes: against plain loops, and the conformance suite."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from sqhn import SQHN
from sqhn.paper.baselines import ByteStore, DownscaledStore, JpegStore, NearestNeighbor, QuantizedStore
from sqhn.paper.baselines.compressed import CodedStore
from sqhn.testing import check_memory

SHAPE = (16, 16, 3)
BUDGET = 100_000


def images(n: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> NDArray[np.float32]:
    """Smooth images in steps of 1/255: between four colors at the corners."""
    corners = np.random.default_rng(seed).random((n, 2, 2, *shape[2:]))
    for axis, length in enumerate(shape[:2], 1):
        place = np.linspace(0, 1, length).reshape(-1, *(1,) * (len(shape) - axis))
        first, last = (corners.take([end], axis) for end in (0, 1))
        corners = first * (1 - place) + last * place
    return np.rint(255 * corners).astype(np.float32) / np.float32(255)


MODELS: dict[str, Callable[[tuple[int, ...]], CodedStore]] = {
    "bytes, nearest": lambda shape: ByteStore(shape, BUDGET, ask="nearest"),
    "bytes, evidence": lambda shape: ByteStore(shape, BUDGET),
    "reservoir": lambda shape: ByteStore(shape, BUDGET, keep="reservoir", ask="nearest"),
    "downscaled": lambda shape: DownscaledStore(shape, BUDGET, 2, ask="nearest"),
    "JPEG": lambda shape: JpegStore(shape, BUDGET, ask="nearest"),
    "JPEG without header": lambda shape: JpegStore(shape, BUDGET, header=False, ask="nearest"),
}


@pytest.mark.parametrize("shape", [(8, 6), (20, 2)])
@pytest.mark.parametrize("model", MODELS)
def test_they_are_memories(model: str, shape: tuple[int, ...]) -> None:
    check_memory(lambda: MODELS[model](shape), shape)


@pytest.mark.parametrize("model", [model for model in MODELS if model != "bytes, evidence"])  # which ignores brightness
@pytest.mark.parametrize("shape", [SHAPE, (16, 12), (40, 6), (24,)])
def test_samples_within_the_budget_are_recalled(model: str, shape: tuple[int, ...]) -> None:
    levels = np.random.default_rng(1).random((9, -(-shape[0] // 8)), np.float32).repeat(8, axis=1)[:, : shape[0]]
    x = np.ascontiguousarray(np.broadcast_to(levels.reshape(9, -1, *(1,) * (len(shape) - 1)), (9, *shape)))
    store = MODELS[model](shape)
    store.learn(x)
    found = store.recall(x)
    np.testing.assert_array_equal(found.index, np.arange(9))
    assert np.square(found.x - x).mean() < 0.02
    assert store.nbytes <= BUDGET


@pytest.mark.parametrize("observed", [None, np.arange(16)[:, None, None] < np.full((1, 1, 3), 7)])
def test_the_nearest_is_that_of_the_plain_store(observed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.paper.baselines.compressed.ROWS_AT_ONCE", 7)
    x, asked = images(30), images(10, seed=5)
    x[20] = x[3]  # a tie, which goes to the lowest index
    asked[0] = x[3]
    mask = None if observed is None else np.broadcast_to(observed, SHAPE)
    ours, plain = ByteStore(SHAPE, BUDGET, ask="nearest"), NearestNeighbor(SHAPE, capacity=30)
    for store in (ours, plain):
        store.learn(x)
    for got, wanted in zip(ours.recall(asked, mask)[:3], plain.recall(asked, mask)[:3]):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_by_evidence_it_answers_as_one_level() -> None:
    x, asked = images(30), images(10, seed=5)
    store, memory = ByteStore(SHAPE, BUDGET), SQHN(SHAPE, capacity=30)
    store.learn(x)
    memory.memorize(x)
    asked[:5] = 0.3 * x[:5]
    mask = np.broadcast_to(np.arange(16)[:, None] < 9, SHAPE[:2])[..., None].repeat(3, axis=2)
    for observed in (None, mask):
        got, wanted = store.recall(asked, observed), memory.recall(asked, observed, inference="evidence")
        np.testing.assert_array_equal(got.index, wanted.index)
        np.testing.assert_allclose(got.score, wanted.score, rtol=1e-6)


def test_a_full_store_keeps_the_first() -> None:
    x = images(9)
    store = ByteStore(SHAPE, budget=5 * 768 + 767)
    assert store.learn(x).index.tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1]
    assert len(store) == 5
    assert store.nbytes == 5 * 768
    np.testing.assert_array_equal(store.recall(x[:5]).x, x[:5])


def test_a_jpeg_that_does_not_fit_fills_the_store() -> None:
    """A smaller one that comes later is not stored either: the store keeps the first."""
    noise = np.random.default_rng(0).random(SHAPE, np.float32)
    flat = np.full(SHAPE, 0.5, np.float32)
    one = JpegStore(SHAPE, BUDGET)
    one.learn(flat)
    store = JpegStore(SHAPE, budget=3 * one.nbytes)
    assert store.learn(np.stack([flat, noise, flat, noise, flat, flat])).index.tolist()[:2] == [0, 1]
    assert len(store) == 2
    assert store.nbytes <= 3 * one.nbytes


def test_a_reservoir_keeps_every_sample_with_the_same_probability() -> None:
    x, count = images(40), np.zeros(40)
    for seed in range(400):
        store = ByteStore(SHAPE, budget=10 * 768, keep="reservoir", ask="nearest", seed=seed)
        places = store.learn(x).index
        kept = {place: number for number, place in enumerate(places) if place >= 0}
        assert len(kept) == len(store) == 10
        count[list(kept.values())] += 1
    assert np.abs(count / 400 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 400)


def test_a_reservoir_needs_codes_of_one_size() -> None:
    with pytest.raises(ValueError, match="needs codes of one size"):
        CodedStore(SHAPE, JpegStore(SHAPE, BUDGET).codec, BUDGET, keep="reservoir")


def test_downscaled_images_are_those_of_pillow() -> None:
    x = images(1)
    store = DownscaledStore(SHAPE, BUDGET, 4)
    store.learn(x)
    picture = Image.fromarray(np.rint(255 * x[0]).astype(np.uint8))
    small = picture.resize((4, 4), Image.Resampling.BICUBIC)
    assert store.nbytes == 4 * 4 * 3
    wanted = np.asarray(small.resize((16, 16), Image.Resampling.BICUBIC)) / np.float32(255)
    np.testing.assert_allclose(store.recall(x[0]).x, wanted, atol=1e-6)
    signal = DownscaledStore((40, 6), BUDGET, 4)
    signal.learn(np.zeros((40, 6)))
    assert signal.nbytes == 10 * 6  # the time of a signal, not its sensors
    with pytest.raises(ValueError, match="factor 20 leaves nothing"):
        DownscaledStore(SHAPE, BUDGET, 20)


@pytest.mark.parametrize("shape", [SHAPE, (16, 12), (40, 6)])
def test_a_jpeg_without_its_header_is_the_same_picture(shape: tuple[int, ...]) -> None:
    x = images(20, shape)
    whole, bare = (JpegStore(shape, 10 * BUDGET, header=header) for header in (True, False))
    for store in (whole, bare):
        store.learn(x)
    np.testing.assert_array_equal(whole.recall(x).x, bare.recall(x).x)
    assert 300 < (whole.nbytes - bare.nbytes) / 20 < 700


def test_the_quality_of_a_jpeg_is_the_smallest_within_the_limit() -> None:
    x = images(5)
    for limit in (0.01, 0.0001):
        for one in x:
            store = JpegStore(SHAPE, BUDGET, limit)
            store.learn(one)
            assert np.square(store.recall(one).x - one).mean() < limit
            picture, sizes = Image.fromarray(np.rint(255 * one).astype(np.uint8)), []
            for quality in (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 95):
                file = io.BytesIO()
                picture.save(file, "JPEG", quality=quality)
                gap = np.asarray(Image.open(file)) - np.rint(255 * one)
                if np.square(gap / 255).mean() < limit:
                    sizes.append(len(file.getvalue()))
            assert store.nbytes == sizes[0] + 4


def test_product_quantization() -> None:
    pytest.importorskip("faiss")
    shape = (8, 6)
    x = np.random.default_rng(0).random((60, *shape), np.float32)
    store = QuantizedStore(shape, BUDGET, width=6, bits=4, ask="nearest")
    store.learn(x)
    assert store.nbytes == 60 * 4 + 4 * 48 * 16  # 8 codes of 4 bits, and 16 centers for each of the 48 values
    groups = x.reshape(60, 8, 6)
    assert np.square(store.recall(x).x - x).mean() < np.square(groups - groups.mean(axis=0)).mean()
    assert QuantizedStore(shape, BUDGET, width=7, bits=4).nbytes == store.codec.nbytes  # 6 divides 48, 7 does not


def test_product_quantization_is_a_memory() -> None:
    """Once its codebooks are trained; before, it needs a batch of many samples."""
    pytest.importorskip("faiss")

    def trained() -> QuantizedStore:
        store = QuantizedStore((8, 6), BUDGET, width=6, bits=4, ask="nearest")
        store.learn(images(20, (8, 6)))
        store.reset()
        return store

    check_memory(trained, (8, 6))
    with pytest.raises(ValueError, match="trains 16 centers, so it needs as many samples; got 3"):
        QuantizedStore((8, 6), BUDGET, width=6, bits=4).learn(images(3, (8, 6)))
