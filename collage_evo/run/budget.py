"""Budget of a run's search: the user's, else the one that the run decided and recorded when its search began."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collage_evo.answer.baselines import Baseline
from collage_evo.config import Config, SearchConfig
from collage_evo.files import Stored
from collage_evo.genome.settings import Budget
from collage_evo.report.stage import Stage
from collage_evo.run.deadline import seconds_left
from collage_evo.run.store import Store

SEARCH_SECONDS = Stored("work/search_seconds.json", float)
"""The decided seconds."""
USUAL_S, LEAST_S = 45.0, 15.0
"""Seconds of a search without a given time: the usual number, and the minimum however late it begins. Chosen: half of
six answers were early mixtures, and of an encoder of 24 layers none in 60 s was more than 3 % faster than these."""
PLACEMENTS = 2
"""Placements for which such a search has time however late it begins, within the usual number of seconds. Chosen."""
WHOLE_S, WHOLE_PLACEMENTS = 100.0, 12
"""A run without a given time is to take so many seconds, or as long as so many placements: the time of twelve builds
and 150 runs of the model."""
FINAL_S, FINAL_RUNS = 30.0, 50
"""Seconds, and runs of the model, for what follows a search: models of up to 100 ms took 30 to 45 s with up to 10 s
more of rounds, a ViT-B/16 of 490 ms 66 s, an encoder of 1,180 ms 85 to 100 s (EPYC, Zen 3)."""
SEARCH_SKIPPED = Stored("work/search_skipped.json", bool)
"""Whether the run skips its search, because that would exceed the planned time."""
REPORT_S = 3.0
"""Seconds of a run with a deadline for its result and report. Chosen."""
COMPARISON = 3.5
"""What a final comparison takes, as a multiple of what a baseline took, which also was loaded, checked and timed:
three rounds, the judging of the winner and its last check. Seen with two contestants: 2.8 and 3.0 for a network of
8 ms, 3.9 for one of 310 ms, of these 1.3 for the judging, which a run may go without."""
LEAST_COMPARISON_S = 9.0
"""The minimum of these seconds: rounds have a least length. Seen: three rounds of four contestants took 6 to 8 s for
networks of 7 to 14 ms, and 5.9 and 3.0 s were too few."""
LAST_CHECK = 0.7
"""The same of the last check. Seen: 0.3 and 0.7."""
SIZES_S = 20.0
"""Seconds of a comparison by size: 15 of rounds, and processes to load. Chosen."""
BASELINES_SHARE = 1 / 3
"""Largest share of the time until a run's deadline that its baselines take, after the first. Chosen."""


def seconds_each(stages: Mapping[str, float], baselines: Sequence[Baseline]) -> float:
    """Mean seconds of those of ``baselines`` that ran; ``stages``: seconds of each stage."""
    return stages.get(Stage.BASELINES, 0.0) / max(1, sum(one.outcome.ok for one in baselines))


def delivery_s(baseline_s: float) -> float:
    """Seconds of a run with a deadline from the judging of its answer on, where a baseline took ``baseline_s``."""
    return LAST_CHECK * baseline_s + REPORT_S


def comparison_s(baseline_s: float, is_open: bool = False) -> float:
    """Seconds of a run with a deadline that its final comparison keeps, where a baseline took ``baseline_s``; of one
    that ``is_open`` it is also by size."""
    return max(COMPARISON * baseline_s, LEAST_COMPARISON_S) + REPORT_S + (SIZES_S if is_open else 0.0)


@dataclass(frozen=True)
class Pace:
    """Seconds that a run of the model takes, and a placement to be compiled, judged and timed; 0 if unknown."""

    run_s: float = 0.0
    placement_s: float = 0.0

    @property
    def searched_by_s(self) -> float:
        """Seconds from the beginning of a run after which a search is over."""
        return max(WHOLE_S, WHOLE_PLACEMENTS * self.placement_s) - FINAL_S - FINAL_RUNS * self.run_s

    @property
    def least_s(self) -> float:
        """The minimum of seconds of a search."""
        return max(LEAST_S, PLACEMENTS * self.placement_s)

    @property
    def most_s(self) -> float:
        """The maximum of seconds of a search that a deadline ends, less its last placement; one at least."""
        return max(1.0, seconds_left() - self.placement_s)


def exceeds_planned_time(config: Config, spent_s: float, pace: Pace) -> bool:
    """Whether a search that begins with its costs after ``spent_s`` seconds of a run ends later than it should.

    It never does if the user gave an amount of search, trials for tuning kernels, or a sweep. With a deadline it
    does if the search would have less time than its costs, or than a few placements take.
    """
    if not math.isinf(seconds_left()):
        return config.costs.seconds + max(config.costs.seconds, PLACEMENTS * pace.placement_s) > seconds_left()
    search = config.search
    given = (config.time, search.seconds, search.evaluations)
    if any(amount is not None for amount in given) or search.tune or config.backends.trials or config.sweep.space:
        return False
    return spent_s + config.costs.seconds + pace.least_s > pace.searched_by_s


def search_budget(
    store: Store,
    search: SearchConfig,
    spent_s: float,
    stages: Mapping[str, float],
    most_s: float = math.inf,
    pace: Pace = Pace(),
) -> Budget:
    """Budget of a search that begins after ``spent_s`` seconds of a run; ``stages``: seconds of each stage.

    A run whose time is limited has ``most_s`` for it. A time that is not given is decided once: a resumed run has no
    more. It excludes tuning.
    """
    seconds = search.seconds
    if seconds is None:
        tuned_s = sum(stages.get(stage, 0.0) for stage in Stage if stage.tunes)
        left_s = USUAL_S if search.evaluations is not None else pace.searched_by_s - (spent_s - tuned_s)
        wanted_s = max(pace.least_s, left_s)
        seconds = store.once(SEARCH_SECONDS, lambda: min(USUAL_S, most_s, wanted_s))
    seconds = min(seconds, most_s)
    return Budget(search.evaluations, None if math.isinf(seconds) else seconds)
