"""The models that the SQHN is compared with, behind the same verbs; torch is imported when one is built."""

from sqhn.paper.baselines.bayes import BayesPCN
from sqhn.paper.baselines.compressed import ByteStore, DownscaledStore, JpegStore, QuantizedStore
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.mhn import MHN, GradInfMHN, ManhattanMHN
from sqhn.paper.baselines.online import OnlineMHN, OnlineMHNTree
from sqhn.paper.baselines.predictive import GPCN
from sqhn.paper.baselines.store import NearestNeighbor

__all__ = [
    "GPCN",
    "MHN",
    "BayesPCN",
    "ByteStore",
    "DownscaledStore",
    "GradInfMHN",
    "JpegStore",
    "ManhattanMHN",
    "NearestNeighbor",
    "OnlineMHN",
    "OnlineMHNTree",
    "QuantizedStore",
    "UnsupportedError",
]
