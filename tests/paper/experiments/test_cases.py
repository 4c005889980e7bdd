"""The measurements of the cases, against brute force and known values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.data import Dataset, Split
from sqhn.data.corruptions import white_noise
from sqhn.data.streams import iid, noisy_samples, unit
from sqhn.paper.experiments import case as base
from sqhn.paper.experiments import table_1
from sqhn.paper.experiments.case import decode_images, encode_images, generator, learn_in_steps, load_split
from sqhn.paper.experiments.depth import Examples, Occlusions
from sqhn.paper.experiments.encoding import Encoding
from sqhn.paper.experiments.energy import Energies, Joint
from sqhn.paper.experiments.models import ByteStore, Nearest, OnlineMHN, OnlineMHNTree, Tree
from sqhn.paper.experiments.per_byte import PerByte
from sqhn.paper.experiments.recognition import TOLERANCES, Recognition
from sqhn.paper.experiments.streams import Stream
from sqhn.paper.experiments.table_1 import Loaded
from sqhn.paper.experiments.theory import Capacity, Cost, Growth, Urn
from sqhn.protocol import Recalled
from sqhn.sizes import array_bytes


def random_set(name: str) -> Dataset:
    rng = np.random.default_rng(len(name))
    shape = (16, 16, 3)
    make = {split: rng.integers(0, 256, (n, *shape), np.uint8) for split, n in (("train", 60), ("test", 40))}
    return Dataset(name, "random", {split: Split(x, np.arange(len(x)) % 4) for split, x in make.items()})


@pytest.fixture(autouse=True)
def sets(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: random_set(name) for name in ("one", "other")}
    monkeypatch.setattr(base, "load", made.__getitem__)


def x_of(name: str = "one", split: str = "train") -> NDArray[np.uint8]:
    return random_set(name).splits[split].x


COMMON: dict[str, Any] = {"set": "one", "data": ("one",), "model": "SQHN", "size": 20, "memory": Tree(20)}


def run(case: Any, seed: int = 0) -> Any:
    return case.run(seed, "cpu")


# -- Table 1 ---------------------------------------------------------------------------------------------------------

LOADED = Loaded(**COMMON, split="train", length=20, corruptions=(("mask", 0.5),), shared=False)


@pytest.mark.parametrize("kernels", [(), (4,), (2, 4)])
def test_stored_images_are_recalled(kernels: tuple[int, ...]) -> None:
    corruptions = (("noise", 0.0), ("mask", 0.5), ("black", 0.25))
    case = replace(LOADED, corruptions=corruptions, memory=Tree(1, kernels))
    clean, mask, black = run(case)["rows"]
    assert (clean["accuracy"], clean["mse"]) == (1.0, 0.0)  # random patches all differ
    assert (mask["accuracy"], mask["mse"], mask["mse_visible"], mask["visible"]) == (1.0, 0.0, 0.0, 0.5)
    assert "mse_visible" not in black


def test_errors_of_missing_pixels_are_over_missing_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    class AnswersWhite:
        def recall(self, x: Any, observed: Any) -> Any:
            from sqhn import Recalled

            return Recalled(np.where(observed, x, 1).astype(np.float32), 0, 0)

    monkeypatch.setattr(table_1, "store_all", lambda *_: AnswersWhite())
    row = run(LOADED)["rows"][0]
    stored = iid(x_of(), 20, generator(0, "data"))
    assert row["mse"] == pytest.approx(np.mean((1 - stored[:, :, 8:]) ** 2), rel=1e-5)
    assert row["mse_all"] == pytest.approx(row["mse"] / 2, rel=1e-5)
    assert row["mse_visible"] == 0


def test_a_baseline_that_stores_samples() -> None:
    row = run(replace(LOADED, memory=Nearest(20), corruptions=(("noise", 0.0),)))["rows"][0]
    assert row["mse"] == 0


# -- streams ---------------------------------------------------------------------------------------------------------

STREAM = Stream(**COMMON, order="iid", length=20, every=5)


def test_below_capacity_every_image_is_recalled() -> None:
    curves = run(replace(STREAM, tests=7))["curves"]
    assert curves["learned"] == [1, 6, 11, 16]
    assert curves["accuracy"] == curves["noisy_accuracy"] == [1.0] * 4
    assert curves["mse"] == [0.0] * 4
    assert curves["unseen_accuracy"] == [0.0] * 4  # random images are not alike
    learned = iid(x_of(), 20, generator(0, "data"))
    unseen = unit(x_of(split="test")[:7])
    for done, mse in zip(curves["learned"], curves["test_mse"]):
        u, y = learned[:done].reshape(done, -1) - 0.5, unseen.reshape(7, -1) - 0.5
        cosine = (y @ u.T) / np.linalg.norm(u, axis=1)
        nearest = learned[cosine.argmax(axis=1)]
        assert mse == pytest.approx(np.mean((nearest - unseen) ** 2), rel=1e-4)


def test_past_capacity_images_are_forgotten() -> None:
    curves = run(replace(STREAM, length=60, memory=Tree(10)))["curves"]
    assert curves["accuracy"][1] == 1.0
    assert curves["accuracy"][-1] < 0.5
    assert curves["noisy_accuracy"][-1] <= curves["accuracy"][-1] + 0.1


def test_images_are_recorded_for_the_first_seed() -> None:
    case = replace(STREAM, show=4)
    recorded = run(case)["pictures"]
    assert decode_images(recorded["learned"]).shape == (4, 16, 16, 3)
    np.testing.assert_array_equal(decode_images(recorded["found"]), decode_images(recorded["learned"]))
    assert "pictures" not in run(case, 1)


@pytest.mark.parametrize("order", ["iid", "class", "domain", "mixed"])
def test_the_images_of_every_order(order: Any) -> None:
    case = replace(STREAM, order=order, data=("one", "other"), transforms=("plain", "flipped"), length=24)

    def drawn(seed: int, split: str = "train") -> Any:
        return case.draw(split, generator(seed, "data"))

    x = drawn(0)
    assert x.transformed(x.x).shape == (24, 16, 16, 3)
    np.testing.assert_array_equal(x.x, drawn(0).x)
    assert not np.array_equal(x.x, drawn(1).x)
    seen = {one.tobytes() for one in unit(x_of(split="test"))} | {one.tobytes() for one in unit(x_of("other", "test"))}
    assert all(one.tobytes() in seen for one in drawn(0, "test").x)  # unseen images come from the other split


def test_unseen_images_are_of_the_classes_so_far() -> None:
    """A test split with fewer images is used in the same proportion."""
    case = replace(STREAM, order="class", length=40, every=10)
    unseen = case.draw("test", generator(0, "unseen"))
    labels = {one.tobytes(): label for one, label in zip(unit(x_of(split="test")), np.arange(40) % 4)}
    assert [labels[one.tobytes()] for one in unseen.x] == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 10


def test_noise_before_or_after_an_image_is_darkened() -> None:
    case = replace(STREAM, order="domain", transforms=("dark",), length=8)
    x = case.draw("train", generator(0, "data"))
    after, before = (replace(case, noise_first=first).noisy(x, 8, np.random.default_rng(0)) for first in (False, True))
    np.testing.assert_array_equal(after, white_noise(x.x / np.float32(2), 0.2, np.random.default_rng(0))[0])
    np.testing.assert_array_equal(before, white_noise(x.x, 0.2, np.random.default_rng(0))[0] / 2)


def test_resident_bytes() -> None:
    store = Nearest(20).build((16, 16, 3), 0, "cpu")
    store.learn(iid(x_of(), 20, generator(0, "data")))
    images = 20 * 16 * 16 * 3 * 4
    assert images <= array_bytes(store) < 1.5 * images
    assert array_bytes([np.zeros((4, 4))[:2], np.zeros(3, np.float32)]) == 16 * 8 + 12
    assert run(STREAM)["bytes"] > images


def test_a_stream_is_learned_in_steps() -> None:
    learned: list[int] = []

    class Counter:
        def learn(self, x: Any) -> None:
            learned.append(len(x))

    assert list(learn_in_steps(Counter(), np.zeros((10, 2), np.float32), 4)) == [1, 5, 9]  # type: ignore[arg-type]
    assert learned == [1, 4, 4]


# -- noisy encoding --------------------------------------------------------------------------------------------------

ENCODING = Encoding(**COMMON, length=8, noise="white", samples=6, hold=True)


def test_held_samples_are_stored_as_their_mean() -> None:
    result = run(replace(ENCODING, squeeze=(0.96, 0.02)))
    x = np.float32(0.96) * iid(x_of(), 8, generator(0, "data")) + np.float32(0.02)
    rng = generator(0, "samples", "white")
    means = [noisy_samples(one[None], 6, "white", 0.2, rng, False)[0].mean(axis=0) for one in x]
    assert result["mse"] == pytest.approx(np.mean((np.array(means) - x) ** 2), rel=1e-4)
    assert result["stored_mse"] == pytest.approx(result["mse"], rel=1e-6)
    assert result["mse"] == pytest.approx(result["floor"], rel=0.1)
    assert (result["stable"], result["grown"]) == (1.0, 8)


def test_stability_of_codes() -> None:
    """Where every sample grows a neuron, only the first sample of each image has the winner of the first."""
    result = run(replace(ENCODING, hold=False, memory=Tree(100)))
    assert (result["stable"], result["grown"]) == (pytest.approx(1 / 6), 48)


def test_recorded_images_of_an_encoding() -> None:
    case = replace(ENCODING, noise="binary", samples=3, show=(1, 2), length=5)
    rows = decode_images(run(case)["pictures"]["rows"])
    assert rows.shape == (4, 4, 16, 16, 3)
    assert set(np.unique(rows[1])) == set(np.unique(rows[2])) == {0, 255}  # after one sample, that sample is stored
    assert set(np.unique(rows[3])) == {0, 128, 255}


@pytest.mark.parametrize("memory", [OnlineMHN(5, 1, 0.1), OnlineMHNTree(5, 1, 0.1, kernels=(4,))])
def test_networks_learn_from_pairs_of_samples(memory: Any) -> None:
    pytest.importorskip("torch")
    result = run(replace(ENCODING, memory=memory, hold=False, paired=True))
    assert result["mse"] > 0
    assert "stable" not in result


# -- recognition -----------------------------------------------------------------------------------------------------

RECOGNITION = Recognition(**{**COMMON, "data": ("one", "other")}, length=20, every=5)


def test_recognition_below_capacity() -> None:
    curves = run(RECOGNITION)["curves"]
    assert curves["accuracy"] == [1.0] * 4
    assert curves["old_share"] == curves["new_share"] == curves["other_share"] == [1.0] * 4
    assert curves["old_mse"] == [0.0] * 4
    assert min(curves["new_mse"]) > 0.05


def test_recognition_with_pretrained_levels() -> None:
    memory = Tree((30, 20), (4,))
    assert run(replace(RECOGNITION, memory=memory, pretrain=30))["curves"]["accuracy"] == [1.0] * 4


def test_recognition_with_noise_is_harder() -> None:
    curves = run(replace(RECOGNITION, sigma=0.5))["curves"]
    assert curves["old_share"][-1] < 1
    assert curves["old_mse"][-1] == 0  # errors are of clean images


def test_tolerances_are_searched() -> None:
    curves = run(replace(RECOGNITION, search=True))["curves"]
    searched = np.array(curves["searched"])
    assert searched.shape == (4, len(TOLERANCES))
    assert searched[:, np.argmin(np.abs(np.array(TOLERANCES) - 1))].tolist() == curves["accuracy"]
    np.testing.assert_allclose(searched[:, 0], 1 / 3)  # all answers are "old"
    np.testing.assert_allclose(searched[:, -1], 2 / 3)  # all answers are "new"


# -- depth -----------------------------------------------------------------------------------------------------------


def test_examples_and_occlusions() -> None:
    corruptions = (("noise", 0.0), ("noise", 0.2), ("black", 0.25), ("dropout", 0.25))
    results = run(Examples(**COMMON, length=20, corruptions=corruptions, draws=5))
    assert [sum(row["recalled"]) for row in results["rows"]] == [5, 5, 5, 5]
    given, found = (decode_images(results["pictures"][name]) for name in ("given", "found"))
    np.testing.assert_array_equal(given[0], x_of()[0])
    np.testing.assert_array_equal(found[2], x_of()[0])
    shown = run(Occlusions(**COMMON, fills=("black", "color"), level=0.4))["pictures"]["given"]
    image, black, color = decode_images(shown)
    np.testing.assert_array_equal(np.any(black != image, axis=2), np.any(color != image, axis=2))


# -- the supplement --------------------------------------------------------------------------------------------------


def test_energies_are_in_order() -> None:
    cells = run(Energies(**{**COMMON, "memory": Tree(8, (4, 2))}, length=8, tests=5))["cells"]
    for name, cell in cells.items():
        assert 0 < cell["random"] < cell["feedforward"] <= cell["paper"] + 1e-12
        assert cell["paper"] <= cell["exact"] + 1e-12 <= 1 + 1e-9
        assert cell["least_gain"] > -1e-9
        if name == "train":  # stored images have the maximal energy
            assert cell["feedforward"] == pytest.approx(1, abs=1e-6)
            assert cell["repeated"] == pytest.approx(1, abs=1e-6)


def test_energy_and_joint_probability_agree_on_learned_images() -> None:
    found = run(Joint(**{**COMMON, "memory": Tree(8, (4, 2))}, length=8, asked=8, priors=(0.5,)))
    learned = [row["same"] for row in found["rows"] if row["cell"] == "learned"]
    assert learned == [1.0, 1.0]
    assert found["least"] == [1.0, 1.0]
    assert found["own"] == pytest.approx(1, abs=1e-5)


def test_growth_measures_neurons_and_steps() -> None:
    curves = run(Growth(**{**COMMON, "memory": Tree(6, (4,))}, length=30, every=10))["curves"]
    assert curves["neurons"] == [[1, 1], [6, 6], [6, 6]]
    assert curves["step"][0] == [1, 1]
    assert 0 < curves["step"][2][1] < 1


def test_theorem_1() -> None:
    results = run(Capacity(**{**COMMON, "memory": Tree(20, alpha=np.inf)}))
    assert results == {"stored": 20, "grown": 20, "worst": 0.0}


def test_theorem_2() -> None:
    curves = run(Urn(**{**COMMON, "size": 50}, length=100, every=50, trials=400))["curves"]
    assert curves["learned"] == [0, 50, 100]
    assert curves["left"][0] == pytest.approx(50)
    np.testing.assert_allclose(curves["left"], curves["expected"], rtol=0.03)


def test_the_cost_of_a_step() -> None:
    case = Cost(**{**COMMON, "memory": Tree(10)}, length=40)
    found = run(case)
    values = 16 * 16 * 3
    assert found["weights"] == 10 * values * 4
    assert found["extra"] == 10 * 3 * 8
    assert found["changed"] <= 0.1  # one neuron of ten
    pytest.importorskip("torch")
    weights = values * 10 * 4
    for more, least, most in (({}, 0, 0), ({"optimizer": "adam"}, 2, 2), ({"consolidation": 1.0}, 2, 4)):
        extra = run(replace(case, memory=OnlineMHN(10, 0.01, 0.01, **more)))["extra"]
        assert least * weights <= extra <= most * weights + 1000
    found = run(replace(case, memory=OnlineMHN(10, 0.01, 0.01, replay=8)))
    assert 8 * values * 4 <= found["extra"] <= 40 * values * 4
    assert found["changed"] > 0.9


# -- common parts -----------------------------------------------------------------------------------------


def test_every_role_has_its_own_random_numbers() -> None:
    """They depend on the seed and the role only."""
    assert generator(3, "data").random() == generator(3, "data").random()
    assert len({generator(seed, role).random() for seed in (0, 1) for role in ("data", "noise")}) == 4


def test_images_as_plain_data() -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
    np.testing.assert_array_equal(decode_images(encode_images(x=unit(x))["x"]), x)


def test_splits() -> None:
    x, y = load_split("one", "train+val")
    assert (len(x), len(y)) == (60, 60)  # there is no val
    np.testing.assert_array_equal(load_split("one", "val")[0], x)


# -- recall per byte -------------------------------------------------------------------------------------------------

PER_BYTE = PerByte(**COMMON | {"memory": ByteStore(10 * 768, ask="nearest")}, length=40, questions=40)


def test_a_store_recalls_its_share_of_a_stream_and_nothing_unseen() -> None:
    found = run(PER_BYTE)
    assert found["stored"] == 40
    assert found["resident"] == found["file"] == 10 * 768
    assert found["seconds"] > 0
    clean, noisy, covered = found["rows"]
    for row in (clean, noisy):  # random images are not alike
        assert (row["recalled"], row["unseen"], row["beyond"]) == (0.25, 0.0, 0.25)
    assert covered["recalled"] <= 0.25


class Echo:
    """A memory that returns any sample as it is."""

    nbytes = 1

    def learn(self, x: NDArray[np.uint8]) -> None:
        self.learned = x

    def recall(self, x: NDArray[np.float32]) -> Recalled:
        return Recalled(x, 0, 0)


def test_a_model_that_rebuilds_any_sample_recalls_nothing_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerByte, "build", lambda *_: Echo())
    clean = run(PER_BYTE)["rows"][0]
    assert (clean["recalled"], clean["unseen"], clean["beyond"]) == (1.0, 1.0, 0.0)


def test_a_stream_that_changes_its_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal part of each set, one after another."""
    memory = Echo()
    monkeypatch.setattr(PerByte, "build", lambda *_: memory)
    run(replace(PER_BYTE, data=("one", "other"), length=50))
    for name, part in zip(("one", "other"), np.split(memory.learned, [25])):
        known = {one.tobytes() for one in x_of(name)}
        assert len({one.tobytes() for one in part} & known) == 25


def test_the_file_of_a_memory_is_measured() -> None:
    found = run(replace(PER_BYTE, memory=Tree(5), length=5, questions=5))
    assert found["file"] > 5 * 768  # single samples of uint8 stay bytes
    assert found["resident"] > 5 * 768
    assert found["rows"][0]["recalled"] == 1.0
