"""A plugin of pytest: Numba cannot be imported, as if it were not installed."""

from __future__ import annotations

import sys
from typing import Any

modules: dict[str, Any] = sys.modules
modules["numba"] = None
