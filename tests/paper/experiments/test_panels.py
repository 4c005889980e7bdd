"""The map from the paper's panels to experiments, claims and figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqhn.paper.experiments.catalogue import CLAIMS, EXPERIMENTS, FIGURES
from sqhn.paper.experiments.panels import PANELS, Panel, panels_table

DOCS = Path(__file__).parents[3] / "docs"


def test_all_claims_of_the_paper_are_on_the_map() -> None:
    assert {name for one in PANELS for name in one.claims} == {c.id for c in CLAIMS.values() if not c.beyond}


def test_the_map_has_every_experiment_and_figure() -> None:
    rows = panels_table()[1:]
    for column, names in ((2, EXPERIMENTS), (3, CLAIMS), (4, FIGURES)):
        assert {name for row in rows for name in row[column].split(", ") if name} == set(names)
    assert set(rows[-1][2].split(", ")) == {"X-RECN", "X-DMG", "X-DMGP", "X-BYT"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.place)
def test_a_panel_is_consistent(panel: Panel) -> None:
    """Its claims and figures are about its experiments."""
    for names, known in ((panel.claims, CLAIMS), (panel.figures, FIGURES)):
        for name in names:
            assert set(known[name].experiments) & set(panel.experiments), name


def test_the_page_of_the_docs_has_the_map() -> None:
    """Each figure is a link."""
    heading, *rows = panels_table()
    for row in rows:
        row[4] = ", ".join(f"[{name}](reproduction/figures/{name}.png)" for name in row[4].split(", ") if name)
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows)]
    assert "\n".join(lines) in (DOCS / "experiments.md").read_text()
