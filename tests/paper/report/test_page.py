"""Figures, tables and pages from records, and the commands that write them."""

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
from sqhn.paper.experiments import records
from sqhn.paper.experiments.case import DEFAULT, READINGS, Job
from sqhn.paper.experiments.catalogue import CLAIMS, EXPERIMENTS, FIGURES
from sqhn.paper.experiments.results import NotRunError, Results
from sqhn.paper.experiments.runner import Backend, Outcome
from sqhn.paper.experiments.table_1 import PUBLISHED
from sqhn.paper.report.tables import table_1, verdict_table
from sqhn.paper.report.verdicts import agreement, counts, judge, published
from tests.paper.experiments.handmade import all_records, record


def draw(results: Results) -> dict[str, Any]:
    """Every figure with records."""
    drawn = {}
    for name, figure in FIGURES.items():
        try:
            drawn[name] = figure.draw(results)
        except NotRunError:
            continue
    return drawn


@pytest.fixture(scope="module")
def drawn(tiny_results: Results) -> dict[str, Any]:
    return draw(tiny_results)


def test_every_claim_is_judged_on_tiny_runs(tiny_results: Results) -> None:
    verdicts = {one.claim.id: one.verdict(DEFAULT) for one in judge(tiny_results)}
    assert set(verdicts) == set(CLAIMS)
    assert not {"ERROR", "NOT RUN"} & set(verdicts.values())
    assert (verdicts["TH1"], verdicts["SE.2"]) == ("PASS", "PASS")


def test_every_figure_can_be_drawn(drawn: dict[str, Any]) -> None:
    assert list(drawn) == list(FIGURES)


def test_a_figure_without_records_is_left_out(tiny_results: Results) -> None:
    assert list(draw(tiny_results.where("TH2"))) == ["th2"]


@pytest.mark.parametrize("seed", range(3))
def test_incomplete_records_can_be_reported(tiny_results: Results, seed: int) -> None:
    """Whichever records are missing, claims are judged and figures drawn."""
    rng = np.random.default_rng(seed)
    some = Results(record for record in tiny_results.records if rng.random() < (0.2, 0.5, 0.9)[seed % 3])
    assert "ERROR" not in {one.verdict(DEFAULT) for one in judge(some)}
    for figure in draw(some).values():
        figure.canvas.draw()


def test_figures_have_all_panels(drawn: dict[str, Any]) -> None:
    panels = {name: len(figure.axes) for name, figure in drawn.items()}
    assert panels["oc-l1-curves"] == 3 * 3
    assert panels["oc-l3-curves"] == 3 * 2
    assert panels["ac-b"] == 3 * 4
    assert panels["ac-d"] == 3 * 3
    assert panels["rc"] == 3
    assert panels["s-exm"] == 4 * 7


def test_a_model_has_the_same_style_in_all_figures(drawn: dict[str, Any]) -> None:
    styles: dict[str, set[tuple[Any, Any]]] = {}
    for figure in drawn.values():
        for axis in figure.axes:
            for line in axis.lines:
                if str(line.get_label()).startswith(("SQHN", "MHN", "NN")) and "uint8" not in str(line.get_label()):
                    styles.setdefault(str(line.get_label()), set()).add((line.get_color(), line.get_marker()))
    assert len(styles) > 12
    assert all(len(found) == 1 for found in styles.values()), styles


def test_the_gray_curve_is_theorem_2(tiny_results: Results, drawn: dict[str, Any]) -> None:
    figure = drawn["ac-d"]
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
        self.anchors: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "img":
            self.images.append(values["src"] or "")
            assert values["alt"]
        if tag == "h2":
            self.anchors.append(values["id"] or "")
        for name in ("href", "src"):
            if name in values:
                self.links.append(values[name] or "")


@pytest.fixture(scope="module")
def report(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("published")
    (folder / records.FILE).write_bytes((tiny / records.FILE).read_bytes())
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_the_page_is_self_contained(report: tuple[Path, str]) -> None:
    folder, printed = report
    page = Page()
    page.feed((folder / "index.html").read_text())
    assert len(page.images) == len(FIGURES)
    own = tuple(f"#{anchor}" for anchor in page.anchors)
    assert all(
        link.startswith(("data:image/png;base64,", "#")) for link in page.links
    )  # nothing is loaded from elsewhere
    assert {link for link in page.links if link.startswith("#")} == set(own)  # the contents list every section
    for name, source in zip(FIGURES, page.images):
        png = folder / "figures" / f"{name}.png"
        assert base64.b64decode(source.partition(",")[2]) == png.read_bytes()
        with Image.open(png) as image:
            assert image.width > 200
    assert f"report: {folder / 'index.html'}" in printed.replace("\n", "")


def test_every_claim_is_in_the_page_the_summary_and_the_terminal(report: tuple[Path, str]) -> None:
    folder, printed = report
    page, summary = (folder / "index.html").read_text(), (folder / "README.md").read_text()
    for claim in CLAIMS:
        assert f"<td>{claim}</td>" in page
        assert f"| {claim} | " in summary
        assert re.search(rf"^ +{re.escape(claim)} +(\(beyond\) +)?(PASS|FAIL|REPORTED|NOT RUN) ", printed, re.MULTILINE)
    for line in (folder / records.FILE).read_text().splitlines()[:1]:
        assert json.loads(line)["commit"] is None or json.loads(line)["commit"] in summary


def test_table_1_marks_cells_without_records(tiny_results: Results) -> None:
    some = Results(one for one in tiny_results.records if "PCN" not in one["settings"]["model"])
    rows = table_1(some, "T1-MOD")
    by_model = {row[0]: row for row in rows if row[1] == "paper"}
    assert set(by_model) == set(PUBLISHED["T1-MOD"])
    for row, below in pairwise(rows):
        if row[1] == "paper":
            assert below[1].startswith("ours")
            assert (below[2:] == ["not run"] * 6) == ("PCN" in row[0])


def cells(mses: list[float], **memory: Any) -> tuple[str, str]:
    """The first cell and the label of BayesPCN's row, for one run with each of these errors."""
    lost = [
        {"kind": kind, "level": 0.75, "mse": 0.0, "mse_visible": 0.0, "visible": 0.5} for kind in ("dropout", "mask")
    ]
    settings = {"model": "BayesPCN", "set": "cifar10", "memory": {"kind": "BayesPCN", **memory}}
    runs = Results(
        record("T1-HIGH", {"rows": [{"kind": "noise", "level": 0.8, "mse": mse, "mse_all": mse}, *lost]}, n, **settings)
        for n, mse in enumerate(mses)
    )
    table = table_1(runs, "T1-HIGH")
    row = table[next(i for i, row in enumerate(table) if row[0] == "BayesPCN") + 1]
    return row[2], row[1]


def test_table_1_shows_means_times_4_spreads_and_sizes() -> None:
    assert cells([0.1, 0.2, 0.3], width=512) == (".8000±.4000", "ours, width 512, 3 seeds")
    assert cells([0.1]) == (".4000", "ours, 1 seed")  # one seed has no spread
    assert cells([0.1], width=512, epochs=7)[1] == "ours, width 512, epochs 7, 1 seed"


def test_both_readings_are_listed_and_counted() -> None:
    records = all_records()
    for one in records:
        if one["experiment"] == "TH1":
            one["readings"] = ["default"]
    records.append(record("TH1", {"worst": 0.5}, model="SQHN L1", set="mnist", size=10) | {"readings": ["code"]})
    judged = judge(Results(records))
    row = next(row for row in verdict_table(judged) if row[0] == "TH1")
    assert row[1:3] == ["PASS", "FAIL"]
    assert "code: largest error: mnist .5000" in row[5]
    claims = [claim for claim in CLAIMS.values() if not claim.beyond]
    reported = sum(all(bounds is None for bounds in claim.bounds.values()) for claim in claims)
    assert counts(judged, "default") == f"{len(claims) - reported} PASS, {reported} REPORTED"
    only_text = sum(claim.readings == (DEFAULT,) for claim in claims)
    assert counts(judged, "code") == f"{len(claims) - reported - only_text - 1} PASS, 1 FAIL, {reported} REPORTED"


def test_readings_of_partial_runs() -> None:
    records = all_records()
    assert Results(records).readings == list(READINGS)
    for one in records[:3]:
        one["readings"] = ["code"]
    assert Results(records).readings == ["code"]


def test_only_claims_about_the_experiments_run_are_listed() -> None:
    some = [one for one in all_records() if one["experiment"] == "RC"]
    assert [one.claim.id for one in judge(Results(some))] == [f"RC.{n}" for n in range(1, 7)]


def test_agreement_counts_claims_that_both_runs_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """All claims with a criterion hold with these records; five verdicts of another run are known."""
    known = {"T1.1": "PASS", "T1.2": "FAIL", "RC.1": "PASS", "RC.2": "NOT RUN", "ACC.1": "REPORTED"}
    monkeypatch.setattr(
        "sqhn.paper.report.verdicts.published", lambda: {claim: {"default": word} for claim, word in known.items()}
    )
    judged = judge(Results(all_records()))
    assert agreement(judged, "default") == (2, 3)
    assert agreement(judged, "code") == (0, 0)


def test_published_verdicts_match_the_published_records() -> None:
    folder = Path(__file__).parents[3] / "docs" / "reproduction"
    judged = judge(Results(records.read(folder).values()))
    assert {one.claim.id: {r: one.verdict(r) for r in READINGS} for one in judged} == published()


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "sqhn reproduce" in result.output


def test_reproduce_from_the_command_line(tmp_path: Path) -> None:
    command = ["reproduce", "TH2", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "index.html").exists()
    assert CliRunner().invoke(app, command).exit_code == 0  # no job left, the same report


def test_a_folder_holds_one_kind_of_run(tmp_path: Path) -> None:
    """A short run and a long one must not be averaged."""
    command = ["reproduce", "S-EMG", "--quick", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    before = (tmp_path / records.FILE).read_bytes()
    result = CliRunner().invoke(app, [word for word in command if word != "--quick"])
    assert result.exit_code == 1
    assert "S-EMG with other settings" in result.output
    assert (tmp_path / records.FILE).read_bytes() == before


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "mnist.npz").write_text("not a zip file")
    monkeypatch.setenv("SQHN_DATA", str(tmp_path))
    for command, named in ((["TH2", "--out", "file"], "file"), (["TH1", "--data", "paper", "--out", "o"], "mnist.npz")):
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(app, ["reproduce", *command, "--seeds", "1", "--jobs", "1"])
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)  # no traceback
        assert named in result.output


def test_an_unavailable_device_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "TH2", "--device", "tpu", "--out", str(tmp_path / "o")])
    assert result.exit_code == 2
    assert "tpu" in result.output
    assert not (tmp_path / "o").exists()


def test_options_select_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selected: list[tuple[set[str], set[tuple[str, ...]]]] = []

    def run(jobs: list[Job], *_: object) -> Outcome:
        selected.append(({job.case.model for job in jobs}, {job.readings for job in jobs}))
        return Outcome(interrupted=True)

    monkeypatch.setattr("sqhn.paper.experiments.runner.run", run)
    for more in ([], ["--heavy"], ["--reading", "code"]):
        CliRunner().invoke(app, ["reproduce", "T1-MOD", "--out", str(tmp_path / "o"), *more])
    (light, both), (heavy, _), (_, code) = selected
    assert heavy - light == {"GPCN (offline)", "BayesPCN", "BayesPCN (forget)"}
    assert both == {("default", "code"), ("default",), ("code",)}
    assert code == {("default", "code"), ("code",)}


def test_an_experiment_without_a_quick_form_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "S-CST", "--quick", "--out", str(tmp_path / "o")])
    assert result.exit_code == 2
    assert "S-CST has no quick form" in result.output


@pytest.mark.parametrize("names", [[], ["all"]])
def test_a_quick_run_of_all_skips_it(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selected: list[set[str]] = []

    def run(jobs: list[Job], *_: object) -> Outcome:
        selected.append({job.experiment for job in jobs})
        return Outcome(interrupted=True)

    monkeypatch.setattr("sqhn.paper.experiments.runner.run", run)
    result = CliRunner().invoke(app, ["reproduce", *names, "--quick", "--out", str(tmp_path / "o")])
    assert result.exit_code == 130, result.output
    assert selected == [set(EXPERIMENTS) - {"S-CST"}]


def test_reproduce_refuses_unknown_experiments(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "T9", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "T1-MOD" in result.output


def test_help_names_every_experiment() -> None:
    result = CliRunner().invoke(app, ["reproduce", "--help"])
    assert result.exit_code == 0
    words = re.sub(r"[\s│]+", " ", result.output)
    assert f"Experiments to run: {' '.join(EXPERIMENTS)}, or all (the default)." in words


def test_the_choices_of_options_match_the_experiments() -> None:
    assert get_args(reproduction.Reading) == ("both", *READINGS)
    assert get_args(reproduction.Backend) == get_args(Backend)
