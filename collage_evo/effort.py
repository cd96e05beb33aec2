"""Efforts of a run, ``quick``, ``normal`` or ``thorough``, as values for keys.

A key that the user sets as well has the user's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from collage_evo.yaml_values import default_key

Effort = Literal["quick", "normal", "thorough"]
EFFORT = "effort"
"""The key of the configuration for the effort."""

QUICK: Mapping[str, Any] = {
    "backends.seconds": 6.0,
    "accuracy.seconds": 1.0,
    "accuracy.calibration": 32,
    "accuracy.search": 16,
    "accuracy.held_out": 64,
    "costs.seconds": 4.0,
    "fitness.timing.min_seconds": 0.1,
    "search.seconds": 5.0,
    "search.rewrites": False,
    "final.candidates": 1,
    "final.seconds": 5.0,
    "final.speeds": "searched",
}
"""Libraries that run most models, mixed where costs and a few measured placements show that it pays. It excludes
libraries that are slow to compile, rewrites, and most of the search, and all intervals are wider."""
NORMAL: Mapping[str, Any] = {}
"""The defaults of the keys."""
THOROUGH: Mapping[str, Any] = {
    "backends.seconds": 3600.0,
    "accuracy.seconds": 60.0,
    "costs.seconds": 120.0,
    "search.seconds": 540.0,
    "final.candidates": 5,
    "final.seconds": 90.0,
}
"""Libraries that are slow to compile take part however long they take. More placements are measured, with measured
instead of estimated costs, and more of them race for longer."""
EFFORTS: Mapping[str, Mapping[str, Any]] = {"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH}


def with_effort(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` of a configuration, nested by section, completed with its effort's values for missing keys."""
    word = values.get(EFFORT)
    for key, value in (EFFORTS.get(word, {}) if isinstance(word, str) else {}).items():
        default_key(values, key, value)
    return values
