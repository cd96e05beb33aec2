"""Rungs for a budget that the search was not for: aimed by what was measured, measured once, ranked with the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collage_evo.genome.encoding import encode
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.patterns.match import Placement
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import nodes_in
from collage_evo.run import flow
from collage_evo.run.search import Searched, SearchRecord
from collage_evo.run.stages import budget_levels
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.state import Evaluated, new_state
from collage_evo.search.mixtures.knapsack import greedy_levels
from tests.search.test_ladder import FLOAT32, LOW, space
from tests.support.precise import predicted_error

SPACE = space()
SINGLE, LEVEL = Origin(Way.SINGLE, ("a",)), Origin.mixture(FLOAT32)
RUN: Any = SimpleNamespace(stage=lambda *told: nullcontext())
SECOND, LAST = 0b1100, 0b11000000
"""Convolutions of the ladder's graph with the Relu behind each, whose squared errors in bfloat16 are 1 and 2."""


class Measuring:
    """Placements take what is predicted, and err ``off`` times as much as is."""

    def __init__(self, patch: pytest.MonkeyPatch, off: float) -> None:
        self.off, self.asked = off, list[Placement]()
        patch.setattr(budget_levels, "measuring", self._begun)

    @contextmanager
    def _begun(self, run: Any, reference: Placement, baselines: Any) -> Iterator[Measuring]:
        yield self

    def outcome(self, placement: Placement) -> Outcome:
        return Outcome(SPACE.predict(placement), error=self.off * predicted_error(SPACE, placement))

    def evaluate(self, placements: Sequence[Placement]) -> list[Outcome]:
        self.asked += placements
        return [self.outcome(placement) for placement in placements]

    @property
    def low(self) -> list[int]:
        """What was in bfloat16 in the placements that were measured."""
        return [nodes_in(placement.regions[0].numerics, Arithmetic.BFLOAT16) for placement in self.asked]


def found(measuring: Measuring) -> SearchRecord:
    """A search that measured everything in float32 and everything in bfloat16."""
    state = new_state(0, {Objective.ERROR: math.inf})
    for engine in (FLOAT32, LOW):
        placement = engine_placement(SPACE, engine)
        made = Evaluated(encode(placement, SPACE), measuring.outcome(placement), SINGLE, 0, 1, 1.0)
        state = replace(state, evaluated={**state.evaluated, placement.key: made})
    return SearchRecord(ranked(state, SPACE), state)


def test_budget_levels_aim_as_much_lower_as_errors_were_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring(monkeypatch, 2.0)
    before = found(measuring)
    after = budget_levels.with_budget_levels(RUN, SPACE, before, (), 4.0, {})
    assert measuring.low == [SECOND | LAST, SECOND], "of 4 they may have 1.9 and 1.7 as predicted: squared 3 and 1"
    assert all(one.outcome.error <= 4.0 for key, one in after.evaluated.items() if key not in before.evaluated)
    assert [one.kind for one in after.evaluated.values()] == [SINGLE, SINGLE, LEVEL, LEVEL]
    assert {placement.key for placement in after.ranked} == after.evaluated.keys()
    assert len(before.evaluated) == 2, "what was found before is as it was"


def test_budget_levels_aim_by_other_budget_levels_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring(monkeypatch, 1.0)
    before = found(measuring)
    ((_, level),) = greedy_levels(SPACE, [FLOAT32, LOW], 1.2, (0.95,))
    outcome = Outcome(SPACE.predict(level), error=2.0 * predicted_error(SPACE, level))
    made = Evaluated(encode(level, SPACE), outcome, LEVEL.as_seed, 0, 3, 1.0)
    state = replace(before.state, evaluated={**before.evaluated, level.key: made})
    budget_levels.with_budget_levels(RUN, SPACE, SearchRecord(ranked(state, SPACE), state), (), 3.9, {})
    assert measuring.low == [SECOND | LAST], "all in bfloat16 errs as predicted, the level twice as much"


def test_what_was_measured_already_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring(monkeypatch, 2.0)
    after = budget_levels.with_budget_levels(RUN, SPACE, found(measuring), (), 4.0, {})
    count = len(measuring.asked)
    assert budget_levels.with_budget_levels(RUN, SPACE, after, (), 4.0, {}).evaluated == after.evaluated
    assert len(measuring.asked) == count


def test_none_is_measured_that_is_predicted_to_be_much_slower_than_what_keeps_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measuring = Measuring(monkeypatch, 1.0)
    monkeypatch.setattr(budget_levels, "SHARES", (0.95, 0.3))
    budget_levels.with_budget_levels(RUN, SPACE, found(measuring), (), 4.2, {})
    assert measuring.low == [0b11111100], "all in bfloat16 keeps 4.2 in 8 ms; one operator alone would take 14"


@pytest.mark.parametrize("budget", [0.0, math.inf])
def test_there_are_none_where_the_budget_is_no_bound_or_float32_alone_keeps_it(
    monkeypatch: pytest.MonkeyPatch, budget: float
) -> None:
    measuring = Measuring(monkeypatch, 1.0)
    before = found(measuring)
    assert budget_levels.with_budget_levels(RUN, SPACE, before, (), budget, {}) is before
    assert not measuring.asked


def test_the_checkpoint_keeps_them_and_the_searchs_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measuring = Measuring(monkeypatch, 2.0)
    before = found(measuring)
    fingerprint = Fingerprint("model", "target", ("a",), SPACE.digest, "latency")
    monkeypatch.setattr(flow, "fingerprint_of", lambda run, space, model: fingerprint)
    kept = replace(before.state, bounds={Objective.ERROR: 4.0})
    checkpoint.save(tmp_path, kept, fingerprint)
    begun: Any = SimpleNamespace(run=SimpleNamespace(directory=tmp_path), baselines=(), normalised=(), model=None)
    searched = Searched(cast(Any, None), (), cast(Any, SimpleNamespace(space=SPACE)), cast(Any, None), before)
    after = flow.Flow.with_budget_levels(begun, RUN, searched, 4.0)
    written = checkpoint.load(tmp_path, fingerprint)
    assert written.evaluated.keys() == after.record.evaluated.keys()
    assert len(written.evaluated) == 4
    assert (written.bounds, written.rng) == (kept.bounds, kept.rng), "a search goes on as it would have"
