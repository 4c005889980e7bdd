"""The examples run and reach the results that they describe."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sqhn import SQHN
from sqhn.data import load
from sqhn.data.corruptions import CORRUPTIONS, DAMAGES

EXAMPLES = Path(__file__).parents[1] / "examples"


def ran(name: str, *given: Any) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](*given)


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text()
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'ran("{path.stem}"' not in here] == []


def test_digits_after_one_look() -> None:
    assert ran("digits_after_one_look") > 0.9


def test_a_semantic_cache() -> None:
    hits, wrong = ran("semantic_cache")
    assert hits > 0.95  # the example states .98
    assert wrong == 0


def test_duplicate_photographs() -> None:
    right, wrong = ran("duplicate_photos")
    assert right == 22
    assert wrong <= 0.01 * 116 + 4 * (0.01 * 116) ** 0.5  # as promised for each of 116 images


def size_of(path: Path) -> tuple[int, int]:
    """The width and height of an image file."""
    with Image.open(path) as image:
        return image.size


def test_a_table_with_holes(tmp_path: Path) -> None:
    bounded, whole, reservoir, everything, means = ran("table_with_holes", str(tmp_path / "image.png")).values()
    assert max(whole, bounded) < 0.7 * min(reservoir, everything) < means / 2
    assert size_of(tmp_path / "image.png") == (1000, 360)


def test_a_drifting_sensor(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the rows drift"):
        window, *others = ran("drifting_sensor", str(tmp_path / "image.png")).values()
    assert window > 0.95
    assert max(others) < 0.65
    assert size_of(tmp_path / "image.png") == (1000, 600)


@pytest.mark.filterwarnings("ignore")  # of scikit-learn, about columns that are 0
def test_against_scikit_learn() -> None:
    found = ran("against_scikit_learn")
    page = (EXAMPLES.parent / "docs" / "estimators.md").read_text()
    for title, cells in found.items():
        for name, row in cells.items():
            assert f"| {name} | " in page
            printed = [
                [float(cell) for cell in line.split(" | ")[1:]]
                for line in page.replace(" |\n", "\n").splitlines()
                if line.startswith(f"| {name} | ")
            ]
            near = [
                np.abs(np.subtract(line, list(row.values()))).max() < 0.02 for line in printed if len(line) == len(row)
            ]
            assert any(near), (title, name, row)
    for which in ("all", "a tenth"):
        for row in found[f"imputation, {which}"].values():
            assert min(row, key=lambda name: row[name]) == "SQHNImputer"
        mean = found[f"classification, {which}"]["mean"]
        assert max(mean, key=lambda name: mean[name]) == "SQHNClassifier"
        mean = found[f"detection, {which}"]["mean"]
        assert (
            mean["SQHNDetector"] >= max(mean["LOF"], mean["IsolationForest"], mean["1-NN"]) - 0.001
        )  # which it equals
        assert mean["false alarms of SQHNDetector"] < 0.05
    mean = found["regression, a tenth"]["mean"]
    assert max(mean, key=lambda name: mean[name]) == "SQHNRegressor"
    average, oldest = found["when_full"]["average"], found["when_full"]["oldest"]
    assert average["missing values (error)"] < oldest["missing values (error)"]
    assert all(average[task] > oldest[task] for task in ("outliers", "classes", "numbers", "a stream"))
    assert average["a stream that drifts"] < oldest["a stream that drifts"] - 0.15


def test_the_last_day() -> None:
    last, before, at_home = ran("last_day")
    assert last > 0.99
    assert before < 0.01
    assert at_home


def test_a_dead_channel() -> None:
    error, mean = ran("dead_channel")
    assert error < mean / 4


def test_recall_from_damage(tmp_path: Path) -> None:
    found = ran("recall_from_damage", str(tmp_path / "image.png"))
    page = (EXAMPLES.parent / "docs" / "evidence.md").read_text()
    for name, row in found.items():
        assert f"| {name} | {' | '.join(f'{share:.2f}' for share in row.values())} |" in page
    assert found["mean"]["one level, evidence"] > 0.95 > 0.75 > found["mean"]["three levels"]
    assert size_of(tmp_path / "image.png")[0] > 1000


def test_novelty_with_a_budget(tmp_path: Path) -> None:
    pytest.importorskip("online_fdr")
    found = ran("novelty_with_a_budget", str(tmp_path / "image.png"), 2)
    wrong = {remedy: shares[0] for remedy, shares in found.items()}
    assert wrong["reviewed"] < 0.15 < min(wrong["calibrated once"], wrong["not reported"])
    assert found["reviewed"][2] > 0.8
    assert found["all images"][2] < 0.1
    assert size_of(tmp_path / "image.png") == (800, 360)


def test_many_images_in_few_bytes() -> None:
    found = ran("many_images_in_few_bytes", 400)
    assert found["megabytes"] < 0.1 * 400 * 3072 / 1e6 + 0.02  # a tenth of the bytes of the images, and a bank
    assert found["clean"] > 0.8
    assert found["half covered"] > 0.5


def test_which_settings() -> None:
    page = (EXAMPLES.parent / "docs" / "settings.md").read_text()
    assert [table for table in ran("which_settings") if table not in page] == []


def test_why_evidence_is_the_rule_and_needs_its_parts() -> None:
    found = ran("why_evidence", "photos32", 80, 4)["mean"]
    assert found["as it is"] == max(found.values())
    assert found["as it is"] > max(found[part] for part in ("no flat rival", "one look", "whole alone")) + 0.05
    every = load("photos32").splits["train"].x
    x = every[np.random.default_rng(0).permutation(len(every))[:80]].astype(np.float32) / np.float32(255)
    memory = SQHN((32, 32, 3), capacity=80)
    memory.memorize(x)
    right = []
    for kind, level in DAMAGES:
        given, _ = CORRUPTIONS[kind](x[:4], level, np.random.default_rng(1))
        right.append(np.mean(memory.recall(given, inference="evidence").index == np.arange(4)))
    assert np.mean(right) == pytest.approx(found["as it is"])
