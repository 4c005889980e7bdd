"""Names of files as labels, and the rules that commands use by default."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.model.labels import MOST
from tests.cli.commands import (
    COLOR,
    GRAY,
    hook,
    image_folder,
    image_names,
    interrupt,
    json_of,
    output_of,
    put,
    saved_memory,
    sqhn,
)

pytestmark = pytest.mark.usefixtures("small_chunks")


def names_in(file: Path) -> list[list[str]]:
    """The labels of each neuron."""
    memory = SQHN.load(file)
    return [[label for label, _ in found] for found in memory.values(range(len(memory)))]


def test_names_are_relative_to_the_common_folder(tmp_path: Path, file: Path) -> None:
    sources = image_folder(tmp_path / "a" / "b", GRAY[:9]), put(tmp_path / "x.npy", GRAY[9:20])
    output_of("learn", *sources, "--memory", file, "--capacity", 20)
    names = [f"a/b/{name}" for name in image_names(9)]
    assert names_in(file) == [[name] for name in [*names, *["x.npy"] * 11]]
    found = json_of("recall", sources[0], "--memory", file, "--out", tmp_path / "out")["samples"]
    assert [row["value"] for row in found] == names
    lines = output_of("recognize", sources[0], "--memory", file).splitlines()
    for n, (line, name) in enumerate(zip(lines, names)):
        assert line.endswith(f"  neuron {n}  value {name}")
    new = json_of("recognize", image_folder(tmp_path / "new", GRAY[20:]), "--memory", file)["samples"]
    assert {(row["old"], row["index"], row["value"]) for row in new} == {(False, None, None)}
    shown = json_of("show", file, "--out", tmp_path / "sheet.png")["samples"]
    assert [row["value"] for row in shown[:9]] == names
    assert f"neuron 3  value {names[3]}\n" in output_of("show", file, "--out", tmp_path / "sheet.png")


def test_odd_names(tmp_path: Path, file: Path) -> None:
    for n, name in enumerate(("ä b.png", "日本.png", f"{'long' * 50}.png")):
        put(tmp_path / "in" / name, GRAY[n])
    output_of("learn", tmp_path / "in", "--memory", file, "--capacity", 9)
    found = json_of("recognize", tmp_path / "in", "--memory", file)["samples"]
    assert [row["value"] for row in found] == [row["name"] for row in found]
    assert json_of("show", file, "--out", tmp_path / "sheet.png")["shown"] == 3


def test_neurons_keep_few_names(tmp_path: Path, file: Path) -> None:
    output_of("learn", image_folder(tmp_path / "in", GRAY[:1].repeat(40, 0)), "--memory", file, "--capacity", 3)
    assert names_in(file) == [image_names(40)[: -MOST - 1 : -1]]  # the latest first


def test_a_resumed_run_goes_on_with_the_next_name(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, handlers: None
) -> None:
    words = ("learn", image_folder(tmp_path / "in", GRAY), "--memory", file, "--capacity", 30)
    with monkeypatch.context() as patch:
        hook(patch, "learn", before={3: interrupt})
        assert sqhn(*words).exit_code == 130
    assert json_of(*words)["continued_after"] == 14
    assert names_in(file) == [[name] for name in image_names(30)]


def test_other_labels_stay(tmp_path: Path, file: Path) -> None:
    memory = SQHN(GRAY.shape[1:], capacity=20)
    memory.learn(GRAY[:2], value=[{"class": 3}, 7])
    memory.learn(GRAY[2])
    memory.save(file)
    output_of("learn", image_folder(tmp_path / "in", GRAY[:4]), "--memory", file)
    both = [[("000.png", 1), ({"class": 3}, 1)], [("001.png", 1), (7, 1)], [("002.png", 1)], [("003.png", 1)]]
    assert SQHN.load(file).values(range(4)) == both
    memory.save(file)
    lines = output_of("recognize", tmp_path / "in", "--memory", file).splitlines()
    assert lines[0].endswith('neuron 0  value {"class": 3}')
    assert lines[1].endswith("neuron 1  value 7")
    assert lines[2].endswith("neuron 2")


def test_images_are_recalled_by_evidence_and_arrays_by_the_paper(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, COLOR[:20])
    dark = (COLOR[:20] // 3).astype(np.uint8)
    found = image_folder(tmp_path / "dark", dark), put(tmp_path / "dark.npy", dark)
    for source, rule in zip(found, ("evidence", "paper")):
        about = json_of("recall", source, "--memory", file, "--out", tmp_path / rule)
        assert about["inference"] == rule
        assert [row["index"] for row in about["samples"]] == memory.recall(dark, inference=rule).index.tolist()
        text = output_of("recall", source, "--memory", file, "--out", tmp_path / rule)
        assert text.endswith(f"recalled 20 (rule: {rule})\n")
    given = json_of("recall", found[0], "--memory", file, "--out", tmp_path / "given", "--inference", "exact")
    assert given["inference"] == "exact"


def test_a_threshold_is_suggested_where_changed_images_count_as_new(tmp_path: Path, file: Path) -> None:
    saved_memory(file, COLOR)
    folder, array = image_folder(tmp_path / "in", COLOR), put(tmp_path / "x.npy", COLOR)
    hint = "changed copies count as new without a threshold for evidence: `sqhn calibrate NEW --as new"
    assert sqhn("recognize", folder, "--memory", file).stderr.startswith(hint)
    assert not sqhn("recognize", folder, "--memory", file, "--inference", "paper").stderr
    assert not sqhn("recognize", array, "--memory", file).stderr
    output_of("learn", array, "--memory", file, "--rho", 0.9)
    assert not sqhn("recognize", folder, "--memory", file).stderr


def test_images_are_recognized_by_evidence_once_it_is_calibrated(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, COLOR[:15])
    old, new = image_folder(tmp_path / "old", COLOR[:15]), image_folder(tmp_path / "new", COLOR[15:])
    assert json_of("recognize", old, "--memory", file)["inference"] == "paper"
    words = ("calibrate", new, "--memory", file, "--as", "new", "--error", 0.1)
    about = json_of(*words)
    expected = memory.calibrate(new=COLOR[15:], error=0.1, inference="evidence")
    assert (about["inference"], about["threshold"]) == ("evidence", expected)
    assert output_of(*words).endswith("judging by 15 (rule: evidence)\n")
    found = json_of("recognize", old, "--memory", file)
    assert (found["inference"], found["old"]) == ("evidence", 15)
    assert [row["index"] for row in found["samples"]] == list(range(15))
    assert json_of("recognize", old, "--memory", file, "--inference", "paper")["inference"] == "paper"
    arrays = json_of("calibrate", put(tmp_path / "x.npy", COLOR[15:]), *words[2:])
    assert (arrays["inference"], arrays["rho"]) == ("paper", memory.calibrate(new=COLOR[15:], error=0.1))
    text = output_of("info", file)
    assert "rho was calibrated at step 15 so that at most 0.1 of new samples are called old" in text
    assert "the threshold of evidence was calibrated at step 15 so that at most 0.1 of new samples" in text
    assert {json_of("info", file)[name]["error"] for name in ("calibration", "evidence")} == {0.1}


@pytest.mark.parametrize(("levels", "rho"), [((), 0.99999), (("--levels", "4"), 0.999)])
def test_the_rho_in_use_is_shown(levels: tuple[str, ...], rho: float, tmp_path: Path, file: Path) -> None:
    source = put(tmp_path / "x.npy", GRAY)
    output_of("learn", source, "--memory", file, "--capacity", 20, *levels)
    assert json_of("info", file)["rho"] == SQHN.load(file).rho == rho
    assert f"rho {rho:g} (default)" in output_of("info", file)
    output_of("learn", source, "--memory", file, "--rho", 0.75)
    assert "rho 0.75," in output_of("info", file)
    assert json_of("info", file)["rho"] == 0.75


def test_names_in_the_folder_of_a_memory(tmp_path: Path) -> None:
    """A memory that a folder keeps takes names too."""
    SQHN(GRAY.shape[1:], capacity=20, folder=tmp_path / "robot").learn(GRAY[:3])
    output_of("learn", image_folder(tmp_path / "in", GRAY[3:6]), "--memory", tmp_path / "robot")
    assert names_in(tmp_path / "robot") == [[], [], [], *([name] for name in image_names(3))]
