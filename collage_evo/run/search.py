"""Genetic search of one run, from the checkpoint if there is one, and what it found; or why there was no search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from collage_evo.answer.candidates import Tried
from collage_evo.costs.kernel_tuning import Tuned
from collage_evo.costs.saved_costs import MeasuredCosts
from collage_evo.errors import DamagedFile, InputError, NotSearchable
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.encoding import decode
from collage_evo.genome.outcome import Evaluator, Objective, Outcome
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.prepare import SearchableModel
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import Reporter
from collage_evo.report.words import format_ms
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import Seeds
from collage_evo.search.evolution.state import Evaluated, SearchState, new_state


class FirstEvaluated(dict[str, Evaluated]):
    """What was measured before the search began, by key."""


@dataclass(frozen=True)
class SearchRecord:
    """Result of the search: placements that ran, the likely fastest first, and its final state.

    With an error budget, only placements within it are ``ranked``.
    """

    ranked: tuple[Placement, ...]
    state: SearchState

    @property
    def evaluated(self) -> Mapping[str, Evaluated]:
        """All measured placements, by key."""
        return self.state.evaluated

    @cached_property
    def outcomes(self) -> Mapping[str, Outcome]:
        """Their outcomes, by key."""
        return {key: one.outcome for key, one in self.state.evaluated.items()}

    @property
    def convergence(self) -> list[dict[str, float]]:
        """Best latency (ms) within the budget known after each generation, over the elapsed seconds."""
        points: list[dict[str, float]] = []
        name = "min" if len(self.state.objectives) == 1 else "best"
        best = math.inf
        for record in self.state.log:
            best = min(best, record.get(name, best))
            if best < math.inf:
                points.append({"seconds": record["seconds"], "evaluations": record["evaluations"], "best_ms": best})
        return points


def named(placements: Iterable[Placement]) -> dict[str, Placement]:
    """Placements by their names in the race."""
    return {f"placement-{index}": placement for index, placement in enumerate(placements)}


@dataclass(frozen=True)
class Placed:
    """A placement and the graph that its regions are of."""

    graph: Graph
    placement: Placement


@dataclass(frozen=True)
class NotSearched:
    """Reason why there was no search, or why it failed: then the answer ``so_far`` may be a placement."""

    reason: str
    so_far: Placed | None = None
    measured: ClassVar[int] = 0
    tried: ClassVar[None] = None

    @property
    def keys(self) -> Mapping[str, str]:
        """As those of :class:`Searched`."""
        placements = (self.so_far.placement,) if self.so_far else ()
        return {name: placement.key for name, placement in named(placements).items()}

    def at(self, key: str | None) -> Placed | None:
        """The answer so far; None for no key."""
        return self.so_far if key is not None else None


@dataclass(frozen=True)
class Searched:
    """Values of the stages of a search."""

    model: SearchableModel
    tuned: Sequence[Tuned]
    costs: MeasuredCosts
    seeds: Seeds
    record: SearchRecord
    baseline_ms: Mapping[Engine, float] = field(default_factory=dict)
    """ms of the whole model on engines that ran it."""

    @property
    def measured(self) -> int:
        """Number of measured placements."""
        return self.record.state.evaluations

    @property
    def keys(self) -> Mapping[str, str]:
        """The keys of the placements that race, by their names there."""
        return {name: placement.key for name, placement in named(self.record.ranked).items()}

    @property
    def tried(self) -> Tried:
        """The measured placements, for the front."""
        return Tried(self.costs.space, self.record.evaluated)

    def at(self, key: str | None) -> Placed | None:
        """The measured placement with ``key``; None for no key."""
        if key is None:
            return None
        space = self.costs.space
        return Placed(space.graph, decode(self.record.evaluated[key].genome, space))

    def ranking(self, placements: Sequence[Placement]) -> Searched:
        """With ``placements`` only ``ranked``."""
        return replace(self, record=replace(self.record, ranked=tuple(placements)))


Found = Searched | NotSearched


def found_so_far(found: Found, placed: Placed | None) -> Found:
    """``found`` with the answer so far only ranked, if it is a placement."""
    if isinstance(found, Searched) and (placed is None or placed.placement.key in found.record.evaluated):
        return found.ranking((placed.placement,) if placed else ())
    return NotSearched(found.reason if isinstance(found, NotSearched) else "", placed)


def run_search(
    space: SearchSpace,
    seeds: Seeds,
    evaluator: Evaluator,
    settings: GaSettings,
    budget: Budget,
    directory: Path,
    fingerprint: checkpoint.Fingerprint,
    reporter: Reporter,
    tuner: Callable[[SearchState], GaSettings] | None = None,
    clock: Callable[[], float] = time.monotonic,
    start: SearchState | None = None,
) -> SearchRecord:
    """Search until the budget is spent or no gain is likely. ``tuner`` chooses settings after a first generation.

    ``start`` is the initial state if there is no checkpoint, including the objectives. Without it latency is the only
    one. A checkpoint continues with the bounds of ``start``.

    Raises:
        NotSearchable: no placement at all could be measured; the commonest reason is given.
        DamagedFile: the checkpoint in ``directory`` is damaged or of another search.
    """
    begun = checkpoint.exists(directory)
    start = start or new_state(settings.seed)
    state = _resumed(checkpoint.load(directory, fingerprint), start) if begun else start
    if state.generation:
        reporter.log(f"going on with the search, after {state.evaluations} placements were timed")
        _report_progress(reporter, state, budget, before=start)
    evolution = Evolution(space, evaluator, settings, budget, clock, seeds)
    last = state

    def on_generation(now: SearchState) -> None:
        nonlocal last
        checkpoint.save(directory, now, fingerprint)
        _report_progress(reporter, now, budget, before=last)
        last = now

    if tuner is not None:  # the tuner learns from measurements with the present settings
        if not state.generation:
            state = evolution.step(state)
            on_generation(state)
        evolution = Evolution(space, evaluator, tuner(state), budget, clock, seeds)
    state = evolution.run(state, on_generation)
    if not state.latency_ms:
        reasons = [one.outcome.reason for one in state.evaluated.values()]
        common = max(set(reasons), key=reasons.count) if reasons else "there was no time for one"
        raise NotSearchable(
            f"no placement could be measured: {common}; enlarge search.seconds (with --time, that), or drop a backend"
        )
    if not checkpoint.exists(directory):  # what was measured before the search has used up its budget
        checkpoint.save(directory, state, fingerprint)
    return SearchRecord(ranked(state, space), state)


def _resumed(state: SearchState, start: SearchState) -> SearchState:
    if state.objectives != start.objectives:
        had, has = (" and ".join(objectives) for objectives in (state.objectives, start.objectives))
        raise DamagedFile(f"the checkpoint is of a search for {had}, this one is for {has}; start a new run")
    return replace(state, bounds=start.bounds)


def recorded_search(space: SearchSpace, directory: Path, fingerprint: checkpoint.Fingerprint) -> SearchRecord:
    """Result so far of the search whose checkpoint is in ``directory``, whatever its error. Nothing is measured.

    Raises:
        InputError: there is no such checkpoint, it is damaged or of another search, or no placement ran in it.
    """
    state = checkpoint.load(directory, fingerprint)
    if not state.latency_ms:
        raise InputError(f"no placement could be measured in {directory}: there is none to pick from")
    bounds = {one: math.inf if one is Objective.ERROR else bound for one, bound in state.bounds.items()}
    state = replace(state, bounds=bounds)
    return SearchRecord(ranked(state, space), state)


def _report_progress(reporter: Reporter, state: SearchState, budget: Budget, before: SearchState) -> None:
    if budget.seconds is not None:
        amount = state.seconds - before.seconds
    else:
        amount = float(state.evaluations - before.evaluations)
    reporter.advance(amount, f"best {format_ms(state.best_ms)} ms of {state.evaluations}")
