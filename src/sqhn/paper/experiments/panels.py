"""The paper's tables, figures and theorems, panel by panel: the experiments, claims and figures that reproduce them."""

from __future__ import annotations

from dataclasses import dataclass

from sqhn.paper.experiments.catalogue import CLAIMS, EXPERIMENTS, FIGURES


@dataclass(frozen=True)
class Panel:
    """One panel: its place in the paper, its contents, and the names of what reproduces it.

    Supplementary figures are named by their subjects.
    """

    place: str
    contents: str
    experiments: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


def _panel(place: str, contents: str, experiments: str = "", claims: str = "", figures: str = "") -> Panel:
    return Panel(place, contents, tuple(experiments.split()), tuple(claims.split()), tuple(figures.split()))


PANELS = (
    _panel("Figure 1", "diagrams of the model"),
    _panel(
        "Table 1, top", "recall from moderate corruption", "T1-MOD",
        "T1.1 T1.2 T1.3 T1.4 T1.5 T1.6 T1.7 T1.8 T1.9 T1.10", "t1-energy",
    ),
    _panel("Table 1, bottom", "recall from high corruption", "T1-HIGH", "T1.1 T1.2 T1.3 T1.4 T1.5 T1.7 T1.10"),
    _panel(
        "Figure 2 A, top", "recall and error along streams, one level", "OC-L1", "OC1.1 OC1.2 OC1.3",
        "oc-l1-curves oc-l1-pictures",
    ),
    _panel(
        "Figure 2 B, top", "cumulative recall and error, one level", "OC-L1", "OC1.4 OC1.6 OC1.7", "oc-l1-cumulative",
    ),
    _panel("Figure 2 C, top", "order sensitivity, one level", "OC-L1", "OC1.5 OC1.9", "oc-l1-cumulative"),
    _panel(
        "Figure 2 A, bottom", "recall and error along streams, three levels", "OC-L3", "OC3.1 OC3.1b OC3.2 OC3.3",
        "oc-l3-curves oc-l3-pictures",
    ),
    _panel(
        "Figure 2 B, bottom", "cumulative recall and error, three levels", "OC-L3", "OC3.4 OC3.6 OC1.7",
        "oc-l3-cumulative",
    ),
    _panel("Figure 2 C, bottom", "order sensitivity, three levels", "OC-L3", "OC3.5 OC3.9", "oc-l3-cumulative"),
    _panel("Figure 2 D", "diagram of the streams"),
    _panel(
        "Figure 3 A", "noisy encoding, one level", "NE-L1", "NE.1 NE.2 NE.4 NE.6 NE.7", "ne-l1 ne-l1-pictures",
    ),
    _panel(
        "Figure 3 B", "noisy encoding, three levels", "NE-L3", "NE.1 NE.2 NE.4 NE.6 NE.7", "ne-l3 ne-l3-pictures",
    ),
    _panel("Figure 4 A", "recognition accuracy", "RC", "RC.1 RC.2 RC.3", "rc"),
    _panel("Figure 4 B", "errors of the SQHN on old, new and foreign images", "RC", "RC.4 RC.6", "rc"),
    _panel("Figure 4 C", "errors of the MHN on the same images", "RC", "RC.5 RC.6", "rc"),
    _panel("Figure 5 A", "the trees that are compared", "AC-B", "", "ac-a"),
    _panel("Figure 5 B", "recall from noise and occlusions, by depth", "AC-B", "ACB.1 ACB.2 ACB.5 ACB.3 ACB.4", "ac-b"),
    _panel("Figure 5 C", "the occlusions", "AC-C", "ACC.1", "ac-c"),
    _panel(
        "Figure 5 D", "recall along a stream and error on unseen images, by depth", "AC-D", "ACD.1 ACD.2 ACD.3 ACD.4",
        "ac-d",
    ),
    _panel(
        "Figure 5 E", "recognition accuracy, by depth", "AC-E", "ACE.1 ACE.2 ACE.3 ACEb.1 ACEb.2 ACEb.3", "ac-e",
    ),
    _panel("Supplement, energy", "energy during inference", "S-EN", "SE.1 SE.2 SE.3", "s-en"),
    _panel("Supplement, ablations", "the learning rule without its parts", "S-ABL", "SA.1 SA.2 SA.3 SA.4", "s-abl"),
    _panel("Supplement, emergence, A", "diagram of the emergent properties"),
    _panel("Supplement, emergence, B", "growth and plasticity, by level", "S-EMG", "SM.1 SM.2 SM.3", "s-emg"),
    _panel("Supplement, moderate corruption", "examples of recalled images", "S-EXM", "EX.1", "s-exm"),
    _panel("Supplement, high corruption", "examples of recalled images", "S-EXH", "EX.2", "s-exh"),
    _panel("Theorem 1", "capacity", "TH1", "TH1"),
    _panel("Theorem 2", "forgetting", "TH2", "TH2", "th2"),
    _panel("Theorem 3", "the learned values change the parameters least", "S-JNT", "TH3"),
    _panel("Supplement, derivation of the energy", "the energy and the joint probability", "S-JNT", "SJ.1"),
    _panel("Supplement, derivation of learning", "learning without feedback, against MAP learning", "S-MAP", "SP.1"),
    _panel("Discussion", "memory and work of a learning step", "S-CST", "SC.1 SC.2"),
)  # fmt: skip
"""In the order of the paper. A panel without experiments is a diagram."""


def panels_table() -> list[list[str]]:
    """One row per panel; the last row has what the paper does not have."""
    rows = [["paper", "contents", "experiment", "claims", "our figure"]]
    rows += [
        [one.place, one.contents, ", ".join(one.experiments), ", ".join(one.claims), ", ".join(one.figures)]
        for one in (*PANELS, _beyond())
    ]
    return rows


def _beyond() -> Panel:
    """The experiments and figures without a panel, and the claims that the paper does not make."""
    shown = {name for one in PANELS for name in (*one.experiments, *one.figures)}
    return Panel(
        "not in the paper", "our own",
        tuple(name for name in EXPERIMENTS if name not in shown),
        tuple(claim.id for claim in CLAIMS.values() if claim.beyond),
        tuple(name for name in FIGURES if name not in shown),
    )  # fmt: skip
