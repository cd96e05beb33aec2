"""Who races for being the answer: the likeliest with a margin, safer ones where these broke the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.answer import may_win
from collage_evo.answer.candidates import feasible_placements, race_candidates, safer_candidates
from collage_evo.costs.saved_costs import MeasuredCosts
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import Written
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.policy import DEFAULT_POLICY
from collage_evo.run.search import NotSearched, Searched, SearchRecord
from collage_evo.run.stages.compile import CompiledCandidates
from collage_evo.search.evolution.state import SearchState
from tests.support.machine import FakeMachine, setting_of
from tests.support.measured import LIMIT, two_nodes
from tests.support.runs import fake_run
from tests.support.typed import not_none


def test_placements_keep_their_order_without_those_over_the_budget() -> None:
    tried, placements = two_nodes()
    order = list(placements.values())[::-1]
    assert feasible_placements(tried, order, LIMIT) == (placements["last"], placements["first"], placements["exact"])
    assert feasible_placements(tried, order, Limits(1e-3)) == (placements["exact"],)


def test_the_likeliest_placements_race_one_of_them_with_a_margin_below_the_budget() -> None:
    tried, placements = two_nodes()
    order = [placements[name] for name in ("low", "first", "last", "exact")]
    key = placements["last"].key

    def racing(limit: Limits, count: int, answered: str = "") -> list[str]:
        names = {placement.key: name for name, placement in placements.items()}
        return [names[placement.key] for placement in race_candidates(tried, order, limit, count, answered)]

    assert racing(LIMIT, 2) == ["first", "last"]
    assert racing(Limits(1e-3, 9.1e-3), 1) == ["first"]
    assert racing(LIMIT, 2, answered=key) == ["last", "first"], "what was the answer before races in any case"
    assert racing(LIMIT, 1, answered=key) == ["last", "first"], "and somebody who may beat it"
    close = replace(tried.evaluated[key], outcome=Outcome(15.0, error=9e-3))
    tried = replace(tried, evaluated={**tried.evaluated, key: close})
    assert racing(LIMIT, 2) == ["first", "last"]
    assert racing(Limits(1e-3, 9.1e-3), 2) == ["first", "exact"], "9.0e-3 may be more on samples not seen"
    told = replace(tried.space, terms={Objective.ERROR: (0.0, 8e-5, 0.0, 1e-6)})
    tried = replace(tried, space=told)
    assert racing(LIMIT, 2) == ["first", "last"], "who is as wrong on few samples, but is said to lose far less"
    tried = replace(tried, space=replace(told, terms={Objective.ERROR: (0.0, 8e-5, 0.0, 7e-5)}))
    assert racing(LIMIT, 2) == ["first", "exact"], "where both are said to lose as much, who loses nothing"
    tried = replace(tried, space=replace(told, terms={Objective.ERROR: (0.0, 8e-5, 0.0, 1e-5)}))
    assert racing(LIMIT, 3) == ["first", "last", "exact"], "each loses far less than the one before"


def test_who_races_after_some_broke_the_budget_errs_as_many_times_less_than_it() -> None:
    tried, placements = two_nodes()
    order = [placements[name] for name in ("low", "first", "last", "exact")]

    def safer(budget: float, **seen: float) -> list[str]:
        names = {placement.key: name for name, placement in placements.items()}
        errors = {placements[name].key: error for name, error in seen.items()}
        return [names[placement.key] for placement in safer_candidates(tried, order, Limits(1e-3, budget), errors)]

    assert safer(0.018, low=0.04) == ["last", "exact"], "twice what the search knows: first would have 1.8 %"
    assert safer(0.018, low=0.02, first=0.018) == ["last", "exact"], "the worst counts"
    assert safer(0.018, low=0.2) == ["exact"]
    assert safer(0.022) == ["low", "exact"], "of those that could not be judged nothing is known"
    key = placements["low"].key
    by_count = {**tried.evaluated, key: replace(tried.evaluated[key], outcome=Outcome(9.0, error=0.0))}
    tried = replace(tried, evaluated=by_count)
    tried = replace(tried, space=replace(tried.space, terms={Objective.ERROR: (0.0, 8e-5, 0.0, 7e-5)}))
    assert safer(0.018, low=0.04) == ["exact"], "none of the search's samples was wrong: a factor is not to be told"
    tried = replace(tried, space=replace(tried.space, terms={Objective.ERROR: (0.0, 8e-5, 0.0, 1e-5)}))
    assert safer(0.018, low=0.04) == ["last", "exact"], "but last is predicted to err much less"
    tried = replace(tried, space=replace(tried.space, terms={Objective.ERROR: (0.0, 0.0, 0.0, 0.0)}))
    assert safer(0.018, low=0.04) == ["exact"], "where nothing is predicted to err, the next one is no safer"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are in the working directory."""
    monkeypatch.chdir(tmp_path)


def compiling(*fail: str) -> FakeMachine:
    """A machine that compiles placements, but for those that ``fail``."""
    failure = Failure(Fault.BUILD, "on purpose")
    return FakeMachine(lambda job: failure if Path(job.artifact).stem in fail else Written())


def asked(machine: FakeMachine) -> list[str]:
    """The names of placements that it was asked to compile."""
    return [Path(job.artifact).stem for job in machine.jobs]


def candidates(
    machine: FakeMachine,
    limits: Limits,
    count: int,
    levels: Callable[[Searched, float], Searched] = lambda found, budget: found,
    best_ms: float = 1e9,
) -> tuple[CompiledCandidates, dict[str, str]]:
    """Of the two nodes' placements, ``count`` at first; and what each is called by its key."""
    tried, placements = two_nodes()
    order = tuple(placements[name] for name in ("low", "first", "last", "exact"))
    found = SearchRecord(order, SearchState(cast(Any, None), evaluated=tried.evaluated))
    costs = MeasuredCosts(cast(Any, None), tried.space, 0, 0, 0)
    searched = Searched(cast(Any, None), (), costs, cast(Any, None), found)
    machine.setting = setting_of(limits=limits)
    run = fake_run(Path(), machine, **{"final.candidates": count})
    told = {placement.key: name for name, placement in placements.items()}
    compiled = CompiledCandidates(run, searched, levels)
    compiled.compile(Outcome(best_ms))
    return compiled, told


def test_safer_ones_are_compiled_beside_those_that_raced() -> None:
    machine = compiling()
    racing, told = candidates(machine, Limits(1e-3, 0.022), 1)
    assert list(racing.artifacts) == ["placement-0"]
    more = racing.safer({"placement-0": 0.05, "openvino/bf16": 0.9})
    names = {name: told[key] for name, key in racing.searched.keys.items()}
    assert names == {"placement-0": "low", "placement-1": "last", "placement-2": "exact"}
    assert list(more) == ["placement-1", "placement-2"]
    assert list(racing.artifacts) == asked(machine) == ["placement-0", "placement-1", "placement-2"]


def test_budget_levels_are_measured_for_a_budget_as_many_times_smaller_as_the_error_was_larger() -> None:
    _, placements = two_nodes()
    budgets = list[float]()

    def levels(found: Searched, budget: float) -> Searched:
        budgets.append(budget)
        return found.ranking([placements["low"], placements["exact"]])

    racing, told = candidates(compiling(), Limits(1e-3, 0.022), 1, levels)
    before = not_none(racing.searched.tried)
    searched_error = before.evaluated[placements["low"].key].outcome.error
    racing.safer({"placement-0": 0.05})
    assert budgets == [pytest.approx(0.95 * 0.022 * searched_error / 0.05)]
    assert sorted(told[key] for key in racing.searched.keys.values()) == ["exact", "low"], "of what it gives"


@pytest.mark.parametrize(("budget", "asked_for"), [(0.022, []), (0.05, [0.05]), (0.0, [])])
def test_where_the_fastest_uses_less_than_half_of_the_budget_mixtures_that_spend_it_are_measured(
    budget: float, asked_for: list[float]
) -> None:
    budgets = list[float]()

    def levels(found: Searched, budget: float) -> Searched:
        budgets.append(budget)
        return found

    candidates(compiling(), Limits(1e-3, budget), 1, levels)
    assert budgets == asked_for


def test_there_are_none_without_a_search_or_without_one_that_compiles() -> None:
    whole = CompiledCandidates(cast(Any, None), NotSearched("it is one operator"), cast(Any, None))
    whole.compile(Outcome(1.0))
    assert whole.artifacts == {} == whole.safer({"openvino": 0.5})
    with pytest.raises(InputError, match="no placement could be compiled"):
        candidates(compiling("placement-0"), LIMIT, 1)


def test_only_placements_near_the_best_single_backend_race() -> None:
    machine = compiling()
    tried, placements = two_nodes()
    outcome = tried.evaluated[placements["first"].key].outcome
    for best_ms, races in ((outcome.latency_ms, True), (cast(float, outcome.latency_ms) / 1.2, False)):
        assert may_win(outcome, replace(outcome, latency_ms=best_ms), DEFAULT_POLICY) == races
    none, _ = candidates(machine, Limits(1e-3, 0.022), 2, best_ms=1e-9)
    assert none.artifacts == {} == dict(cast(Searched, none.searched).keys)
    assert not machine.jobs
    assert none.safer({"openvino/bf16": 0.9}), "the best single backend is out, and with it the bound"
