"""What bounds the search of a run: what a person gave, else what the run decided when its search began, and kept."""

from __future__ import annotations

import math

from collage_evo.config import SearchConfig
from collage_evo.genome.search.settings import Budget
from collage_evo.run.store import Store

SEARCH_SECONDS = "search_seconds"
"""The stage that keeps what was decided, seconds."""
USUAL_S, LEAST_S = 90.0, 30.0
"""Seconds of a search whose time is not given: as many, and however late it begins at least so many."""
SEARCHED_BY_S = 180.0
"""Seconds from the beginning of a run after which such a search is over."""


def search_budget(store: Store, search: SearchConfig, spent_s: float) -> Budget:
    """What bounds a search that begins when ``spent_s`` of a run are spent.

    Time that is not given is decided once: a run that is resumed has no more.
    """
    seconds = search.seconds
    if seconds is None:
        left_s = USUAL_S if search.evaluations is not None else SEARCHED_BY_S - spent_s
        seconds = store.once(SEARCH_SECONDS, float, lambda: min(USUAL_S, max(LEAST_S, left_s)))
    return Budget(search.evaluations, None if math.isinf(seconds) else seconds)
