"""Reader of ONNX Runtime's profile files: the times of each kernel."""

from __future__ import annotations

import json
from pathlib import Path

_SUFFIX = "_kernel_time"


def read_profile(path: Path) -> dict[str, list[float]]:
    """The times in ms of each call of each kernel, by the name of its node in the optimised graph."""
    found: dict[str, list[float]] = {}
    for event in json.loads(path.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX):
            found.setdefault(event["name"].removesuffix(_SUFFIX), []).append(event["dur"] / 1e3)
    return found
