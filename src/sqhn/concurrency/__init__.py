"""Locks and signals."""
