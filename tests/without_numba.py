"""A plugin of pytest: Numba cannot be imported, as if it were not installed."""

from __future__ import annotations

import sys
from typing import Any


def pytest_configure() -> None:
    """Not when this module is imported, since pytest looks for doctests in all modules."""
    modules: dict[str, Any] = sys.modules
    modules["numba"] = None
