"""What was seen where a claim does not hold: shown in a report only where it fails."""

from __future__ import annotations

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, str] = {}
