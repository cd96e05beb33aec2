"""Mixtures of precisions are measured before the costs and for another budget, and recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.baselines import Baseline
from collage_evo.config import parse_config
from collage_evo.fitness.jobs import Measured
from collage_evo.genome.encoding import decode, encode
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.patterns.match import Placement
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import nodes_in
from collage_evo.report.progress import LineReporter
from collage_evo.run import final
from collage_evo.run.context import RunContext
from collage_evo.run.search import Searched, SearchRecord
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.stages.mixtures import MIXTURES, EarlyMixtures, in_space, with_mixtures_for_budget
from collage_evo.run.store import Store
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.state import Evaluated, new_state
from collage_evo.search.mixtures.knapsack import mixtures_at, predicted_error
from collage_evo.search.mixtures.measured import Mixture
from tests.search.test_knapsack import FLOAT32, LOW, space
from tests.support.machine import FakeMachine, setting_of

SPACE = space()
BASELINES = [Baseline("a", "a", "default", Path("a"), Outcome(20.0, error=0.0))]
SINGLE, MIXTURE = Origin(Way.SINGLE, ("a",)), Origin.mixture(FLOAT32)


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    """A run on a machine on which each placement takes 5 ms and errs by 1.5."""
    machine = FakeMachine(lambda job: Measured((5.0,) * 3, 1.5, 1.5), setting_of(limits=Limits(1e-3, budget=4.0)))
    config = parse_config({"model": {"source": "m.onnx"}}, (), "test")
    return RunContext(config, tmp_path, LineReporter(lambda line: None), machine, tmp_path, cast(Any, None))


def searched(low_error: float = 8.0, mixtures: Mapping[Placement, float] = MappingProxyType({})) -> SearchRecord:
    """A search that measured everything in float32, everything in bfloat16, and ``mixtures`` with these errors."""
    measured = [(engine_placement(SPACE, FLOAT32), 0.0, SINGLE), (engine_placement(SPACE, LOW), low_error, SINGLE)]
    measured += [(placement, error, MIXTURE.as_seed) for placement, error in mixtures.items()]
    evaluated = {
        placement.key: Evaluated(
            encode(placement, SPACE), Outcome(SPACE.predict(placement), error=error), origin, 0, 1, 1.0
        )
        for placement, error, origin in measured
    }
    state = replace(new_state(0, {Objective.ERROR: math.inf}), evaluated=evaluated)
    return SearchRecord(ranked(state, SPACE), state)


def test_mixtures_for_another_budget_join_what_the_search_measured(run: RunContext) -> None:
    before = searched()
    after = with_mixtures_for_budget(run, SPACE, before, BASELINES, 4.0, {})
    assert [one.kind for one in after.evaluated.values()] == [SINGLE, SINGLE, MIXTURE, MIXTURE]
    first = with_mixtures_for_budget(run, SPACE, before, BASELINES, 4.0, {}, most=1)
    assert [*first.evaluated] == [*after.evaluated][:3]
    assert {one.outcome.error for key, one in after.evaluated.items() if key not in before.evaluated} == {1.5}
    assert {placement.key for placement in after.ranked} == after.evaluated.keys()
    assert len(before.evaluated) == 2, "what was found before is as it was"
    assert with_mixtures_for_budget(run, SPACE, after, BASELINES, 4.0, {}) is after, "they were measured"


def test_mixtures_of_the_search_correct_those_for_another_budget(run: RunContext) -> None:
    ((_, mixture),) = mixtures_at(SPACE, [FLOAT32, LOW], 1.2, (0.95,))
    before = searched(4.0, {mixture: 2 * predicted_error(SPACE, mixture)})
    with_mixtures_for_budget(run, SPACE, before, BASELINES, 3.9, {})
    (job,) = cast(FakeMachine, run.machine).jobs
    assert nodes_in(job.regions[0].numerics, Arithmetic.BFLOAT16) == 0b11001100, "not 3.7 as all in bfloat16 says"


@pytest.mark.parametrize("budget", [0.0, math.inf])
def test_there_are_none_without_a_bound_or_where_float32_alone_keeps_it(run: RunContext, budget: float) -> None:
    before = searched()
    assert with_mixtures_for_budget(run, SPACE, before, BASELINES, budget, {}) is before


def test_there_are_none_after_a_search_that_had_no_time_for_a_placement(run: RunContext) -> None:
    before = SearchRecord((), new_state(0, {Objective.ERROR: math.inf}))
    assert with_mixtures_for_budget(run, SPACE, before, BASELINES, 4.0, {}) is before


def test_early_mixtures_are_recorded_with_what_the_search_needs_of_them(tmp_path: Path) -> None:
    (fast, slow), far = (engine_placement(SPACE, engine) for engine in (LOW, FLOAT32)), Failure(Fault.HANG)
    found = EarlyMixtures("key", (Mixture(fast, FLOAT32, Outcome(5.0)), Mixture(slow, FLOAT32, Outcome.unfit(far))))
    store = Store(tmp_path)
    store.put(MIXTURES, found)
    assert store.get(MIXTURES) == found
    evaluated = in_space(found.mixtures, SPACE)
    assert [decode(one.genome, SPACE) for one in evaluated.values()] == [fast, slow]
    assert [(one.kind, one.evaluation) for one in evaluated.values()] == [(MIXTURE.as_seed, 1), (MIXTURE.as_seed, 2)]
    pairs = zip(SPACE.matches, SPACE.cost.match_ms, strict=True)
    slow_ms = tuple(math.inf if match.engine == LOW and match.nodes == 1 else ms for match, ms in pairs)
    lacking = replace(SPACE, cost=replace(SPACE.cost, match_ms=slow_ms))
    assert [one.outcome for one in in_space(found.mixtures, lacking).values()] == [Outcome.unfit(far)]


def test_the_checkpoint_keeps_them_and_the_searchs_bounds(
    run: RunContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = searched()
    fingerprint = Fingerprint("model", "target", ("a",), SPACE.digest, "latency")
    monkeypatch.setattr(final, "fingerprint_of", lambda run, space, model: fingerprint)
    kept = replace(before.state, bounds={Objective.ERROR: 4.0})
    checkpoint.save(tmp_path, kept, fingerprint)
    record = Searched(cast(Any, None), (), cast(Any, SimpleNamespace(space=SPACE)), cast(Any, None), before)
    after = final.with_mixtures(run, cast(Any, None), Baselines(BASELINES), record, 4.0)
    written = checkpoint.load(tmp_path, fingerprint)
    assert written.evaluated.keys() == after.record.evaluated.keys()
    assert len(written.evaluated) == 4
    assert (written.bounds, written.rng) == (kept.bounds, kept.rng), "a search goes on as it would have"
