"""river estimators; see `sqhn.estimators.river`."""

from sqhn.estimators.river import SQHNClassifier, SQHNDetector, SQHNImputer, SQHNRegressor

__all__ = ["SQHNClassifier", "SQHNDetector", "SQHNImputer", "SQHNRegressor"]
