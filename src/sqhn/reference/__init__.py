"""The model in plain NumPy, one sample at a time, which every fast path is tested against.

`model` is the paper's network, `variants` its readings and ablations, `evidence` our own rule of recall.
"""

from sqhn.reference.model import Network, Node, winner
from sqhn.reference.variants import Ablation, Reading, ReferenceSQHN, VariedNode, learn_by_map

__all__ = ["Ablation", "Network", "Node", "Reading", "ReferenceSQHN", "VariedNode", "learn_by_map", "winner"]
