"""What the protocols measure, against brute force and against what must be so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.data import Dataset, Split
from sqhn.data.streams import iid, noisy_samples, unit
from sqhn.experiments import protocols
from sqhn.experiments.protocols import generator, picture, pictures_of


def random_set(name: str) -> Dataset:
    rng = np.random.default_rng(len(name))
    shape = (16, 16, 3)
    make = {split: rng.integers(0, 256, (n, *shape), np.uint8) for split, n in (("train", 60), ("test", 40))}
    return Dataset(name, "made here", {split: Split(x, np.arange(len(x)) % 4) for split, x in make.items()})


@pytest.fixture(autouse=True)
def sets(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: random_set(name) for name in ("one", "other")}
    monkeypatch.setattr(protocols, "load", made.__getitem__)


def x_of(name: str = "one", split: str = "train") -> NDArray[np.uint8]:
    return random_set(name).splits[split].x


MEMORY = {"kind": "sqhn", "kernels": [], "capacity": 20}


def settings(**more: Any) -> dict[str, Any]:
    common = {"data": ["one"], "split": "train", "memory": MEMORY, "threshold": 0.01, "length": 20, "shared": False}
    return common | {"every": 5, "sigma": 0.2, "tests": 0, "show": 0, "order": "iid"} | more


@pytest.mark.parametrize("kernels", [[], [4], [2, 4]])
def test_memorize(kernels: list[int]) -> None:
    corruptions = [["noise", 0.0], ["mask", 0.5], ["black", 0.25]]
    case = settings(corruptions=corruptions, memory={"kind": "sqhn", "kernels": kernels})
    clean, mask, black = protocols.memorize(case, 0)["rows"]
    assert (clean["accuracy"], clean["mse"]) == (1.0, 0.0)  # random patches are all different
    assert (mask["accuracy"], mask["mse"], mask["mse_visible"]) == (1.0, 0.0, 0.0)
    assert "mse_visible" not in black


def test_errors_of_missing_pixels_are_over_missing_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gray:
        def recall(self, x: Any, observed: Any) -> Any:
            from sqhn import Recalled

            return Recalled(np.where(observed, x, 1).astype(np.float32), 0, 0)

    monkeypatch.setattr(protocols, "loaded", lambda settings, stored, seed: Gray())
    row = protocols.memorize(settings(corruptions=[["mask", 0.5]]), 0)["rows"][0]
    stored = iid(x_of(), 20, generator(0, "data"))
    assert row["mse"] == pytest.approx(np.mean((1 - stored[:, :, 8:]) ** 2), rel=1e-5)
    assert row["mse_visible"] == 0


def test_online_below_capacity_recalls_everything() -> None:
    results = protocols.online(settings(tests=7), 0)
    curves = results["curves"]
    assert curves["t"] == [0, 5, 10, 15]
    assert curves["accuracy"] == [1.0] * 4
    assert curves["mse"] == [0.0] * 4
    learned = iid(x_of(), 20, generator(0, "data"))
    unseen = unit(x_of(split="test")[:7])
    for t, mse in zip(curves["t"], curves["test_mse"]):
        u, y = learned[: t + 1].reshape(t + 1, -1) - 0.5, unseen.reshape(7, -1) - 0.5
        cosine = (y @ u.T) / np.linalg.norm(u, axis=1)
        nearest = learned[cosine.argmax(axis=1)]
        assert mse == pytest.approx(np.mean((nearest - unseen) ** 2), rel=1e-4)


def test_online_past_capacity_forgets() -> None:
    curves = protocols.online(settings(length=60, memory={**MEMORY, "capacity": 10}), 0)["curves"]
    assert curves["accuracy"][1] == 1.0
    assert curves["accuracy"][-1] < 0.5
    assert curves["noisy_accuracy"][-1] <= curves["accuracy"][-1] + 0.1


def test_pictures_are_kept_for_the_first_seed() -> None:
    kept = protocols.online(settings(show=4), 0)["pictures"]
    assert pictures_of(kept["learned"]).shape == (4, 16, 16, 3)
    np.testing.assert_array_equal(pictures_of(kept["found"]), pictures_of(kept["learned"]))
    assert "pictures" not in protocols.online(settings(show=4), 1)


@pytest.mark.parametrize("order", ["iid", "class", "domain", "mixed"])
def test_every_order(order: str) -> None:
    case = settings(order=order, data=["one", "other"], transforms=["plain", "flipped"], length=24)
    x = protocols.stream(case, 0)
    assert x.shape == (24, 16, 16, 3)
    np.testing.assert_array_equal(x, protocols.stream(case, 0))
    assert not np.array_equal(x, protocols.stream(case, 1))


def test_held_samples_are_stored_as_their_mean() -> None:
    case = settings(
        noise="white", samples=6, hold=True, paired=False, ema=False, squeeze=[0.96, 0.02], show=[], length=8
    )
    result = protocols.noisy_encoding(case, 0)
    x = np.float32(0.96) * iid(x_of(), 8, generator(0, "data")) + np.float32(0.02)
    rng = generator(0, "samples", "white")
    means = [noisy_samples(one[None], 6, "white", 0.2, rng, False)[0].mean(axis=0) for one in x]
    assert result["mse"] == pytest.approx(np.mean((np.array(means) - x) ** 2), rel=1e-4)
    assert result["mse"] == pytest.approx(result["floor"], rel=0.1)


def test_what_is_shown_of_an_encoding() -> None:
    case = settings(
        noise="binary", samples=3, hold=True, paired=False, ema=False, squeeze=[1, 0], show=[1, 2], length=5
    )
    kept = protocols.noisy_encoding(case, 0)["pictures"]
    rows = pictures_of(kept["rows"])
    assert rows.shape == (4, 4, 16, 16, 3)
    np.testing.assert_array_equal(rows[1], rows[2])  # after one sample, that sample is stored


def recognizing(**more: Any) -> dict[str, Any]:
    return settings(data=["one", "other"], transform="plain", pretrain=0, sigma=0) | more


def test_recognition_below_capacity() -> None:
    results = protocols.recognition(recognizing(), 0)
    curves = results["curves"]
    assert curves["accuracy"] == [1.0] * 4
    assert curves["old_share"] == curves["new_share"] == curves["other_share"] == [1.0] * 4
    assert curves["old_mse"] == [0.0] * 4
    assert min(curves["new_mse"]) > 0.05


def test_recognition_with_pretrained_levels() -> None:
    memory = {"kind": "sqhn", "kernels": [4], "capacity": [30, 20]}
    curves = protocols.recognition(recognizing(memory=memory, pretrain=30), 0)["curves"]
    assert curves["accuracy"] == [1.0] * 4


def test_recognition_from_noise_is_harder() -> None:
    curves = protocols.recognition(recognizing(sigma=0.5), 0)["curves"]
    assert curves["old_share"][-1] < 1
    assert curves["old_mse"][-1] == 0  # errors are of clean pictures


def test_energies_are_in_order() -> None:
    case = settings(
        memory={"kind": "sqhn", "kernels": [4, 2], "capacity": 8}, length=8, tests=5, test_split="test", sweeps=3
    )
    cells = protocols.energies(case, 0)["cells"]
    for name, cell in cells.items():
        assert 0 < cell["random"] < cell["feedforward"] <= cell["paper"] + 1e-12
        assert cell["paper"] <= cell["exact"] + 1e-12 <= 1 + 1e-9
        assert cell["least_gain"] > -1e-9
        if name == "train":  # stored pictures explain themselves
            assert cell["feedforward"] == pytest.approx(1, abs=1e-6)
            assert cell["repeated"] == pytest.approx(1, abs=1e-6)


def test_emergence_counts_neurons_and_steps() -> None:
    case = settings(memory={"kind": "sqhn", "kernels": [4], "capacity": 6}, length=30, every=10)
    curves = protocols.emergence(case, 0)["curves"]
    assert curves["neurons"] == [[1, 1], [6, 6], [6, 6]]
    assert curves["step"][0] == [1, 1]
    assert 0 < curves["step"][2][1] < 1


def test_theorem_1() -> None:
    results = protocols.theorem_1(settings(memory={**MEMORY, "alpha": "inf"}), 0)
    assert results == {"stored": 20, "grown": 20, "worst": 0.0}


def test_theorem_2() -> None:
    results = protocols.theorem_2({"capacity": 50, "length": 100, "every": 50, "trials": 400}, 0)["curves"]
    assert results["t"] == [0, 50, 100]
    assert results["left"][0] == pytest.approx(50)
    np.testing.assert_allclose(results["left"], results["expected"], rtol=0.03)


def test_examples_and_occlusions() -> None:
    corruptions = [["noise", 0.0], ["noise", 0.2], ["black", 0.25], ["dropout", 0.25]]
    results = protocols.examples(settings(corruptions=corruptions, draws=5, memory={"kind": "sqhn"}), 0)
    assert [sum(row["recalled"]) for row in results["rows"]] == [5, 5, 5, 5]
    given, found = (pictures_of(results["pictures"][name]) for name in ("given", "found"))
    np.testing.assert_array_equal(given[0], x_of()[0])
    np.testing.assert_array_equal(found[2], x_of()[0])
    shown = protocols.occlusions(settings(fills=["black", "color"], level=0.4), 0)["pictures"]["given"]
    picture_, black, color = pictures_of(shown)
    np.testing.assert_array_equal(np.any(black != picture_, axis=2), np.any(color != picture_, axis=2))


def test_every_memory_meets_the_same_pictures() -> None:
    """The generator of a role depends on the seed and the role alone."""
    assert generator(3, "data").random() == generator(3, "data").random()
    assert len({generator(seed, role).random() for seed in (0, 1) for role in ("data", "noise")}) == 4


def test_pictures_as_plain_data() -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
    np.testing.assert_array_equal(pictures_of(picture(unit(x))), x)


def test_splits() -> None:
    x, y = protocols.pool("one", "train+val")
    assert (len(x), len(y)) == (60, 60)  # there is no val
    np.testing.assert_array_equal(protocols.pool("one", "val")[0], x)
