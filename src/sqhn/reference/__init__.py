"""The paper in plain NumPy, one sample at a time: the truth that every fast path is tested against."""

from sqhn.reference.model import Ablation, Node, Reading, ReferenceSQHN, learn_by_map, winner

__all__ = ["Ablation", "Node", "Reading", "ReferenceSQHN", "learn_by_map", "winner"]
