"""``quick``, ``normal`` or ``thorough``: how much a run may take, as values for keys.

A key that a person gives as well stays as they gave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from collage_evo.yaml_values import default_key

Effort = Literal["quick", "normal", "thorough"]
EFFORT = "effort"
"""The key of the configuration that holds the word."""

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
"""Libraries that run most models, mixed where costs and a few measured placements say that it pays. Libraries that
are slow to compile, rewrites, and most of the search are left out, and all intervals are wider."""
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
"""Libraries that are slow to compile take part whatever they take. More placements are measured, on costs that are
measured and not estimated, and more of them race for longer."""
EFFORTS: Mapping[str, Mapping[str, Any]] = {"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH}


def with_effort(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` of a configuration, nested by section, and what its effort says of keys that it does not give."""
    word = values.get(EFFORT)
    for key, value in (EFFORTS.get(word, {}) if isinstance(word, str) else {}).items():
        default_key(values, key, value)
    return values
