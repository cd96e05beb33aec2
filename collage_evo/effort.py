"""Efforts of a run, ``quick``, ``normal`` or ``thorough``, as values for keys.

A key that the user sets as well has the user's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Effort = Literal["quick", "normal", "thorough"]
EFFORT = "effort"
"""The key of the configuration for the effort."""
TIME = "time"
"""The key of the configuration for the seconds of a whole run."""
USUAL: Mapping[str, float] = {
    "backends.seconds": 45.0,
    "accuracy.seconds": 20.0,
    "costs.seconds": 20.0,
    "final.seconds": 20.0,
}
"""Defaults of the keys that are seconds of one stage."""

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
TIMED: Mapping[str, float] = {
    "backends.seconds": 0.15,
    "accuracy.seconds": 0.05,
    "costs.seconds": 0.12,
    "final.seconds": 0.15,
}
"""Largest share of a run's ``time`` that the value of a key is. The search has what is left."""
IN_A_HURRY_S = 45.0
"""A run with less ``time`` has effort ``quick`` unless another is given: ``normal`` would end before its search."""
EFFORTS: Mapping[str, Mapping[str, Any]] = {"quick": QUICK, "normal": {}, "thorough": THOROUGH}


def with_effort(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` of a configuration, nested by section, completed with its effort's values for missing keys."""
    from collage_evo.yaml_values import default_key  # commands on a serving machine need no YAML

    word, seconds = values.get(EFFORT), values.get(TIME)
    timed = seconds if isinstance(seconds, int | float) else None
    if timed is not None and word is None and timed < IN_A_HURRY_S:
        word = values[EFFORT] = "quick"
    chosen = dict(EFFORTS.get(word, {}) if isinstance(word, str) else {})
    if timed is not None:
        chosen |= {key: min(share * timed, chosen.get(key, USUAL[key])) for key, share in TIMED.items()}
    for key, value in chosen.items():
        default_key(values, key, value)
    return values
