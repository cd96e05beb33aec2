"""What bounds the search of a run: what a person gave, else what the run decided when its search began, and kept."""

from __future__ import annotations

import json
import math
from pathlib import Path

from collage_evo.config import SearchConfig
from collage_evo.files import read_json, write_whole
from collage_evo.genome.search.settings import Budget

USUAL_S, LEAST_S = 90.0, 30.0
"""Seconds of a search whose time is not given: as many, and however late it begins at least so many."""
SEARCHED_BY_S = 180.0
"""Seconds from the beginning of a run after which such a search is over."""


def search_budget(directory: Path, search: SearchConfig, spent_s: float) -> Budget:
    """What bounds a search that begins when ``spent_s`` of the run in ``directory`` are spent.

    Time that is not given is decided once: a run that is resumed has no more.
    """
    seconds = search.seconds or kept_seconds(directory)
    if seconds is None:
        left_s = USUAL_S if search.evaluations is not None else SEARCHED_BY_S - spent_s
        seconds = min(USUAL_S, max(LEAST_S, left_s))
        write_whole(_kept(directory), json.dumps(seconds))
    return Budget(search.evaluations, None if math.isinf(seconds) else seconds)


def kept_seconds(directory: Path) -> float | None:
    """What the run in ``directory`` decided, seconds; None as long as it has not.

    Raises:
        DamagedFile: it cannot be read.
    """
    return read_json(_kept(directory), float) if _kept(directory).exists() else None


def _kept(directory: Path) -> Path:
    return directory / "work" / "search_seconds.json"
