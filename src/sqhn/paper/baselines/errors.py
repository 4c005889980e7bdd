"""What goes wrong only with the memories SQHN is compared with."""

from __future__ import annotations

__all__ = ["UnsupportedError"]


class UnsupportedError(NotImplementedError):
    """A memory does not have the verb that was asked of it; the message names both."""
