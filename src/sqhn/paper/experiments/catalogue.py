"""All families of experiments, and their experiments, claims and figures by name."""

from __future__ import annotations

from sqhn.paper.experiments import (
    ablations,
    continual,
    damage,
    depth,
    encoding,
    energy,
    forgetting,
    per_byte,
    recognition,
    table_1,
    theory,
)
from sqhn.paper.experiments.case import Experiment
from sqhn.paper.experiments.claims import Claim
from sqhn.paper.experiments.family import Family, FigureSpec

FAMILIES: dict[str, Family] = {
    "Table 1": table_1.FAMILY,
    "Online-continual learning": continual.FAMILY,
    "Past capacity": forgetting.FAMILY,
    "Ablations": ablations.FAMILY,
    "Noisy encoding": encoding.FAMILY,
    "Recognition": recognition.FAMILY,
    "Robustness by depth": depth.FAMILY,
    "Recall from damage": damage.FAMILY,
    "Recall per byte": per_byte.FAMILY,
    "Energy": energy.FAMILY,
    "Growth, theorems, costs": theory.FAMILY,
}
EXPERIMENTS: dict[str, Experiment] = {one.id: one for family in FAMILIES.values() for one in family.experiments}
CLAIMS: dict[str, Claim] = {one.id: one for family in FAMILIES.values() for one in family.claims}
FIGURES: dict[str, FigureSpec] = {one.name: one for family in FAMILIES.values() for one in family.figures}
