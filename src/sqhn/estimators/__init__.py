"""Estimators for scikit-learn and river."""
