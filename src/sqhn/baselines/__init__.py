"""The memories that the paper compares the SQHN with, behind the same verbs; torch is imported when one is made."""

from sqhn.baselines.bayes import BayesPCN
from sqhn.baselines.errors import UnsupportedError
from sqhn.baselines.online import OnlineMHN, OnlineMHNTree
from sqhn.baselines.predictive import GPCN
from sqhn.baselines.store import MHN, GradInfMHN, ManhattanMHN, NearestNeighbor

__all__ = [
    "GPCN",
    "MHN",
    "BayesPCN",
    "GradInfMHN",
    "ManhattanMHN",
    "NearestNeighbor",
    "OnlineMHN",
    "OnlineMHNTree",
    "UnsupportedError",
]
