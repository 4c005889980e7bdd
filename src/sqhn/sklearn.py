"""The estimators of `sqhn.estimators.sklearn`."""

from sqhn.estimators.sklearn import SQHNClassifier, SQHNDetector, SQHNImputer

__all__ = ["SQHNClassifier", "SQHNDetector", "SQHNImputer"]
