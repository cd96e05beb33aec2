"""The least run there is: for tests that look at something else than at how well it measures and searches."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from collage_evo.hardware.slots import usable_cores


def _own_core() -> int:
    """A core that no other worker of pytest-xdist measures on, as long as there are so many."""
    cores, worker = usable_cores(), os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return cores[int(worker.removeprefix("gw")) % len(cores)]


_TIMING = {"warmup": 1, "min_runs": 3, "min_seconds": 0.001, "max_seconds": 0.29}
"""Less than the pause before a disturbed measurement is taken again: tests beside each other would spend their time
in such pauses."""

QUICK_ALL_CORES: Mapping[str, Any] = {
    "backends.use": ["onnxruntime"],
    "accuracy.budget": "exact",
    "costs.timing": _TIMING,
    "policy.cuts": 4,
    "policy.race_share_ms": 20.0,
    "fitness.timing": _TIMING,
    "search.evaluations": 1,
    "search.seconds": 20,
    "final.rounds": 2,
    "final.candidates": 1,
    "cache.dir": "cache",
}
"""Every stage takes part, each with the least that it can do; the cache lies in the working directory."""

QUICK: Mapping[str, Any] = {**QUICK_ALL_CORES, "target.cores": [_own_core()]}
"""The same on one core, with half of the processes: one that builds and one that measures."""


def options(settings: Mapping[str, Any]) -> list[str]:
    """``settings``, values by dotted key, as the command line takes them."""
    return [part for key, value in settings.items() for part in ("-s", f"{key}={json.dumps(value)}")]


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings``, values by dotted key, as a configuration in Python or YAML has them."""
    sections: dict[str, Any] = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        section = sections
        for name in path:
            section = section.setdefault(name, {})
        section[last] = value
    return sections
