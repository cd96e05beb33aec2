"""What bounds the search of a run: what a person gave, else what the run decided when its search began, and kept."""

from __future__ import annotations

import math
from collections.abc import Mapping

from collage_evo.config import SearchConfig
from collage_evo.run.store import Store
from collage_evo.search.evolution.settings import Budget

SEARCH_SECONDS = "search_seconds"
"""The stage that keeps what was decided, seconds."""
USUAL_S, LEAST_S = 90.0, 30.0
"""Seconds of a search whose time is not given: as many, and however late it begins at least so many."""
SEARCHED_BY_S = 180.0
"""Seconds from the beginning of a run after which such a search is over."""
TUNING = "tuning"
"""In the names of all stages that tune, or measure for tuning only."""


def search_budget(store: Store, search: SearchConfig, spent_s: float, stages: Mapping[str, float]) -> Budget:
    """What bounds a search that begins when ``spent_s`` of a run are spent; ``stages``: seconds that each took.

    Time that is not given is decided once: a run that is resumed has no more. Tuning takes none of it.
    """
    seconds = search.seconds
    if seconds is None:
        tuned_s = sum(seconds for stage, seconds in stages.items() if TUNING in stage)
        left_s = USUAL_S if search.evaluations is not None else SEARCHED_BY_S - (spent_s - tuned_s)
        seconds = store.once(SEARCH_SECONDS, float, lambda: min(USUAL_S, max(LEAST_S, left_s)))
    return Budget(search.evaluations, None if math.isinf(seconds) else seconds)
