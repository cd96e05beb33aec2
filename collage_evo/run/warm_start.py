"""Warm start: a run that begins with another one's answer (``--like``), for new weights on the same or a similar
graph.

Only backends that came near in the other run are measured as baselines, nothing is profiled, and of placements only
the good ones of that run are measured (``run/transferred.py`` translates them). Calibration, errors and the race are
new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import DEFAULT, plain_name
from collage_evo.config import Config
from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Fault
from collage_evo.graph.ir.align import likeness
from collage_evo.graph.load.files import read_model
from collage_evo.graph.load.load import ModelFile
from collage_evo.pruning import SLOW_ENGINE
from collage_evo.report.progress import Reporter
from collage_evo.report.words import describe_failure
from collage_evo.run.recorded import RecordedRun, read_run

LEAST_ALIKE = 0.5
"""Share of the operators that another run must have in common with this one for a transfer."""
LIKE_SECONDS, PLACEMENTS = 8.0, 6
"""Bounds of the search, if the user gives none."""
QUICK: Mapping[str, Mapping[str, Any]] = {
    "final": {"seconds": 8.0},
    "accuracy": {"calibration": 64, "held_out": 64},
}
"""Settings that suffice if the answer is nearly known; keys that the user changed stay unchanged."""


@dataclass(frozen=True)
class WarmStart:
    """The other run, where it applies to this one; None if this one begins without any."""

    earlier: RecordedRun | None = None

    @property
    def far(self) -> dict[Engine, str]:
        """Single backends that were so far behind that they are not measured again, and why.

        At least one in float32 remains, as the exact one: the fastest of those that do not compile for long. So does
        a backend that won, has a part of the answer or was compared with it, whatever its first latency.
        """
        earlier = self.earlier
        if earlier is None:
            return {}
        timed = {b: b.outcome.latency_ms for b in earlier.baselines if b.outcome.latency_ms is not None}
        exact = min((b for b in timed if b.exact), key=lambda b: (_compiles_long(b), timed[b]), default=None)
        best = min((ms for b, ms in timed.items() if b.keeps(earlier.result.accuracy.largest or 0.0)), default=0.0)
        reasons, took_part = {}, _took_part(earlier)
        for baseline in earlier.baselines:
            ms, engine = timed.get(baseline), (baseline.backend, baseline.variant)
            failure = baseline.outcome.failure
            if failure is not None and failure.fault is Fault.KNOWN:
                reasons[engine] = failure.message
            elif (baseline.backend, plain_name(baseline.variant)) in took_part:
                continue
            elif ms is None and failure is not None:
                reasons[engine] = f"in {earlier.directory} {describe_failure(failure, *engine)}"
            elif ms is not None and best and ms > SLOW_ENGINE.number * best and baseline is not exact:
                reasons[engine] = f"it took {ms / best:.1f} times as long as the best in {earlier.directory}"
        return reasons


def _took_part(earlier: RecordedRun) -> set[Engine]:
    """Engines of the answer, the best single library, and the libraries that the answer was compared with."""
    result = earlier.result
    backend, _, variant = result.best_single.partition("/")
    engines = [(backend, variant or DEFAULT.name)]
    engines += [(region.backend, region.variant) for region in result.placement]
    engines += [(library.backend, library.variant) for library in result.libraries]
    return {(name, plain_name(way)) for name, way in engines}


def _compiles_long(baseline: Baseline) -> bool:
    backend = get_backend(baseline.backend)
    return not backend.runs_any_model(backend.variant(baseline.variant))


def begin_like(config: Config, reporter: Reporter, file: ModelFile) -> tuple[Config, WarmStart]:
    """The run that ``search.like`` names, and the configuration that suffices with it for the model in ``file``.

    If nothing can be transferred, the run logs it, and the configuration stays unchanged.

    Raises:
        InputError: there is no such run, or it has not ended.
    """
    if config.search.like is None:
        return config, WarmStart()
    if not (place := Path(config.search.like)).is_dir():
        raise InputError(
            f"the warm start (--like) needs the run directory {place}, which is missing: restore it, or start a run "
            "without --like in another --out"
        )
    earlier = read_run(place, config.model.one_profile())
    if why := _unlike(config, earlier, file):
        reporter.log(f"nothing of {earlier.directory} carries over: {why}; this is a run like any other")
        return config, WarmStart()
    return _quickened(config), WarmStart(earlier)


def _unlike(config: Config, earlier: RecordedRun, file: ModelFile) -> str:
    """Why nothing of another run can be transferred; empty if something may."""
    if not earlier.searched or not earlier.original.exists():
        return "it was not searched, or its folder work is gone"
    if config.search.objective != earlier.config.search.objective:
        return f"it was searched for {earlier.config.search.objective}"
    share = likeness(file.declared, read_model(earlier.original))
    return "" if share >= LEAST_ALIKE else f"{share:.0%} of the operators are the same"


def _quickened(config: Config) -> Config:
    if config.search.seconds is None and config.search.evaluations is None:
        config = config.replacing("search", seconds=LIKE_SECONDS, evaluations=PLACEMENTS)
    for name, values in QUICK.items():
        section = getattr(config, name)
        usual = type(section).model_fields
        left = {key: value for key, value in values.items() if getattr(section, key) == usual[key].default}
        config = config.replacing(name, **left)
    return config
