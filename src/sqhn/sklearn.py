"""scikit-learn estimators; see `sqhn.estimators.sklearn`."""

from sqhn.estimators.sklearn import SQHNClassifier, SQHNDetector, SQHNImputer, SQHNRegressor

__all__ = ["SQHNClassifier", "SQHNDetector", "SQHNImputer", "SQHNRegressor"]
