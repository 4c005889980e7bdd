"""Threads and signals."""
