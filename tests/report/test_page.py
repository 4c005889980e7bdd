"""Figures and the page, from records alone."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sqhn.cli import app, reproduction
from sqhn.experiments import records
from sqhn.experiments.catalogue import EXPERIMENTS, PRESETS, Job
from sqhn.experiments.runner import Backend, Outcome
from sqhn.report.claims import CLAIMS, judge
from sqhn.report.figures import FIGURES, draw
from sqhn.report.page import table_1
from sqhn.report.paper import TABLE_1
from sqhn.report.results import Results


def test_every_figure_can_be_drawn(tiny_results: Results) -> None:
    drawn = [figure.name for figure, _ in draw(tiny_results)]
    assert drawn == [figure.name for figure in FIGURES]


def test_a_figure_without_records_is_left_out(tiny_results: Results) -> None:
    assert [figure.name for figure, _ in draw(tiny_results.where("TH2"))] == ["th2"]


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_is_not_complete_can_be_looked_at(tiny_results: Results, seed: int) -> None:
    """Whatever is missing, what is there is judged and drawn."""
    rng = np.random.default_rng(seed)
    some = Results(record for record in tiny_results.records if rng.random() < (0.2, 0.5, 0.9)[seed % 3])
    assert len(judge(some)) == len(CLAIMS)
    for _, figure in draw(some):
        figure.canvas.draw()


def test_figures_show_their_panels(tiny_results: Results) -> None:
    panels = {figure.name: len(drawn.axes) for figure, drawn in draw(tiny_results)}
    assert panels["oc-l1-curves"] == 2 * 3
    assert panels["oc-l3-curves"] == 2 * 2
    assert panels["ac-b"] == 3 * 4
    assert panels["ac-d"] == 2 * 3
    assert panels["rc"] == 3
    assert panels["s-exm"] == 4 * 7


def test_the_gray_line_is_theorem_2(tiny_results: Results) -> None:
    figure = next(drawn for figure, drawn in draw(tiny_results) if figure.name == "ac-d")
    line = next(one for one in figure.axes[0].lines if one.get_label() == "Theorem 2")
    J = tiny_results.of("AC-D").settings("size")[0]
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    np.testing.assert_allclose(y[x <= J], 1)
    np.testing.assert_allclose(y[x > J], (J * np.exp(-(x - J) / J) / x)[x > J])


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.images: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "img":
            self.images.append(values["src"] or "")
            assert values["alt"]
        for name in ("href", "src"):
            if name in values:
                self.links.append(values[name] or "")


@pytest.fixture(scope="module")
def published(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("published")
    (folder / records.FILE).write_bytes((tiny / records.FILE).read_bytes())
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_the_page_holds_all_it_shows(published: tuple[Path, str]) -> None:
    folder, printed = published
    page = Page()
    page.feed((folder / "index.html").read_text())
    assert len(page.images) == len(FIGURES)
    assert all(link.startswith("data:image/png;base64,") for link in page.links)  # nothing from elsewhere
    for figure, source in zip(FIGURES, page.images):
        png = folder / "figures" / f"{figure.name}.png"
        assert base64.b64decode(source.partition(",")[2]) == png.read_bytes()
        with Image.open(png) as image:
            assert image.width > 200
    assert f"report: {folder / 'index.html'}" in printed.replace("\n", "")


def test_every_claim_is_in_the_page_the_summary_and_the_terminal(published: tuple[Path, str]) -> None:
    folder, printed = published
    page, summary = (folder / "index.html").read_text(), (folder / "README.md").read_text()
    for claim in CLAIMS:
        assert f"<td>{claim}</td>" in page
        assert f"| {claim} | " in summary
        assert re.search(rf"^ {re.escape(claim)} +(PASS|FAIL|NOT RUN) ", printed, re.MULTILINE)
    for line in (folder / records.FILE).read_text().splitlines()[:1]:
        assert json.loads(line)["commit"] is None or json.loads(line)["commit"] in summary


def test_table_1_never_shows_a_number_that_was_not_run(tiny_results: Results) -> None:
    rows = table_1(tiny_results, "T1-MOD")
    by_model = {row[0]: row for row in rows if row[1] == "paper"}
    assert set(by_model) == set(TABLE_1["T1-MOD"])
    for row, below in pairwise(rows):
        if row[1] == "paper":
            assert below[1] == "ours"
            assert (below[2:] == ["not yet"] * 6) == ("PCN" in row[0])  # heavy, so not among the tiny runs


def cells(mses: list[float], **memory: Any) -> tuple[str, str]:
    """The first cell of BayesPCN's row, and what the row is called, for one run each with these errors."""
    rows = [{"kind": kind, "level": 0.75, "mse": 0.0, "mse_visible": 0.0} for kind in ("dropout", "mask")]
    settings = {"preset": "default", "model": "BayesPCN", "set": "cifar10", "memory": {"kind": "bayes_pcn", **memory}}
    runs = Results(
        {
            "experiment": "T1-HIGH",
            "settings": settings,
            "seed": seed,
            "results": {"rows": [{"kind": "noise", "level": 0.8, "mse": mse}, *rows]},
        }
        for seed, mse in enumerate(mses)
    )
    table = table_1(runs, "T1-HIGH")
    row = table[next(i for i, row in enumerate(table) if row[0] == "BayesPCN") + 1]
    return row[2], row[1]


def test_table_1_shows_means_times_4_spreads_and_sizes() -> None:
    assert cells([0.1, 0.2, 0.3], width=512) == (".8000±.4000", "ours, width 512")
    assert cells([0.1]) == (".4000", "ours")  # one seed has no spread
    assert cells([0.1], width=512, epochs=7)[1] == "ours, width 512, epochs 7"


def test_a_folder_without_records_says_how_to_make_some(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "sqhn reproduce" in result.output


def test_reproduce_from_the_command_line(tmp_path: Path) -> None:
    command = ["reproduce", "TH2", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "index.html").exists()
    assert CliRunner().invoke(app, command).exit_code == 0  # nothing to do, the same report


def test_a_folder_holds_one_kind_of_run(tmp_path: Path) -> None:
    """A short run and a long one, or two presets, must not be averaged."""
    command = ["reproduce", "AC-C", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    before = (tmp_path / records.FILE).read_bytes()
    result = CliRunner().invoke(app, [*command, "--preset", "code"])
    assert result.exit_code == 1
    assert "AC-C with other settings" in result.output
    assert (tmp_path / records.FILE).read_bytes() == before


def test_what_cannot_be_written_or_read_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "mnist.npz").write_text("no zip")
    monkeypatch.setenv("SQHN_DATA", str(tmp_path))
    for command, named in ((["TH2", "--out", "file"], "file"), (["TH1", "--data", "paper", "--out", "o"], "mnist.npz")):
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(app, ["reproduce", *command, "--seeds", "1", "--jobs", "1"])
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)  # no traceback
        assert named in result.output


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "TH2", "--device", "abacus", "--out", str(tmp_path / "o")])
    assert result.exit_code == 2
    assert "abacus" in result.output
    assert not (tmp_path / "o").exists()


def test_naming_a_device_also_runs_the_memories_that_take_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[set[str], str]] = []

    def run(jobs: list[Job], _: Path, __: int, ___: str, ____: object, device: str) -> Outcome:
        asked.append(({job.settings["model"] for job in jobs}, device))
        return Outcome(interrupted=True)

    monkeypatch.setattr("sqhn.experiments.runner.run", run)
    for more in ([], ["--device", "cpu"]):
        CliRunner().invoke(app, ["reproduce", "T1-MOD", "--out", str(tmp_path / "o"), *more])
    (plain, _), (named, device) = asked
    assert named - plain == {"GPCN (offline)", "BayesPCN", "BayesPCN (forget)"}
    assert device == "cpu"


def test_reproduce_refuses_unknown_experiments(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "T9", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "T1-MOD" in result.output


def test_help_names_every_experiment() -> None:
    result = CliRunner().invoke(app, ["reproduce", "--help"])
    assert result.exit_code == 0
    words = re.sub(r"[\s│]+", " ", result.output)
    assert f"Which experiments: {' '.join(EXPERIMENTS)}, or all, which is the default." in words


def test_options_take_the_words_of_the_experiments() -> None:
    assert get_args(reproduction.Preset) == PRESETS
    assert get_args(reproduction.Backend) == get_args(Backend)
