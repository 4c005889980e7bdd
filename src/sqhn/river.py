"""river estimators; see `sqhn.estimators.river`."""

from sqhn.estimators.river import SQHNClassifier, SQHNDetector, SQHNImputer

__all__ = ["SQHNClassifier", "SQHNDetector", "SQHNImputer"]
