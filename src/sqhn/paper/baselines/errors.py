"""Errors that only the baselines raise."""

from __future__ import annotations


class UnsupportedError(NotImplementedError):
    """A model does not support a verb; the message names both."""
