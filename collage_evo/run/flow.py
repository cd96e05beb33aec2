"""Flow of a run as a graph of values: each is evaluated on demand, after those that it needs, and once.

Commands request different values. ``run``, ``resume`` and each trial of a sweep evaluate :meth:`Flow.result`; with
several profiles of shapes each first its :attr:`Flow.baselines`, which give a first answer; ``tune`` the
:meth:`Flow.search`; ``pick`` the :meth:`Flow.answer` of earlier measurements, within other limits, and of budget
levels for these. Records that a stage makes once in a run's life are read from the run directory (``run/store.py``)
by later evaluations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from collage_evo.answer.baselines import Baseline, best_single, near_defaults
from collage_evo.answer.delivery import MODEL, OBJECTIVE, Delivery
from collage_evo.backends.base import UNCHECKED, Backend
from collage_evo.backends.enumerate import Matches
from collage_evo.config import Config
from collage_evo.costs.expected import apportioned_ms, expected_space
from collage_evo.costs.saved_costs import MeasuredCosts, costs_key
from collage_evo.errors import AnswerStays, NotSearchable
from collage_evo.fitness.jobs import REGIONS, recorded_regions
from collage_evo.genome.failure import Failure
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.patterns.match import Placement
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.report.finished import RESULT, result_in, write_result
from collage_evo.report.html import REPORT, write_html
from collage_evo.report.progress import Reporter
from collage_evo.report.result import SCHEMA, Result
from collage_evo.run.at_work import at_work
from collage_evo.run.best_so_far import BestSoFar
from collage_evo.run.budget import SEARCH_SKIPPED, exceeds_planned_time, resume_search
from collage_evo.run.context import RunContext
from collage_evo.run.kernel_tuning import Tuning
from collage_evo.run.machine import chosen_backends
from collage_evo.run.objectives import Precision, answer_bounds, search_bounds, terms
from collage_evo.run.open import open_run
from collage_evo.run.result import Ended
from collage_evo.run.samples import model_file
from collage_evo.run.search import NotSearched, Placed, Searched, SearchRecord, recorded_search
from collage_evo.run.stages.answer import answer_speeds, deliver
from collage_evo.run.stages.baselines import fall_back, measure_baselines, on_normalised
from collage_evo.run.stages.compile import CompiledCandidates
from collage_evo.run.stages.costs import expected_costs, gather_costs, tune_backends
from collage_evo.run.stages.evolve import evolve, fingerprint_of, pace_of, skipped_search
from collage_evo.run.stages.excluded_engines import known_ms
from collage_evo.run.stages.held_out import artifact_of, hold_out
from collage_evo.run.stages.matches import find_matches
from collage_evo.run.stages.mixtures import (
    MIXTURES,
    EarlyMixtures,
    in_space,
    measure_early,
    with_mixtures_for_budget,
)
from collage_evo.run.stages.model import NORMALISED, Normalised, normalise
from collage_evo.run.stages.precision import calibrated_ranges, predict_losses
from collage_evo.run.stages.threads import settled, threads_that_pay
from collage_evo.run.transferred import TransferredCosts
from collage_evo.run.warm_start import Earlier, begin_like
from collage_evo.runtime.manifest import read_infos
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.seeds import Seeds, make_seeds
from collage_evo.search.mixtures.likely import suffices
from collage_evo.search.mixtures.measured import Mixture, corrections_by

T = TypeVar("T")


@dataclass(frozen=True)
class Flow:
    """The values of a run. Each is evaluated on first access, after those that it needs.

    Values of a search raise ``NotSearchable`` if the model only runs whole, and all raise ``CollageError``, whose
    message explains what to do.

    Attributes:
        run: the context of the stages, with the error limits.
        model: the user's own, in the form in which it runs.
        backends: those that take part.
        earlier: another run, if this one begins with its answer.
    """

    run: RunContext
    model: PreparedModel
    backends: Sequence[Backend]
    earlier: Earlier | None = None

    @cached_property
    def delivery(self) -> Delivery:
        """The common parts of every published answer."""
        return fall_back(self.run, self.model, self.backends)

    @cached_property
    def best_so_far(self) -> BestSoFar:
        """Publishes answers as they are found."""
        return BestSoFar(self.run, self.delivery)

    @cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """Each single backend. The best so far is published at once."""
        run = self.run
        if run.config.search.objective == "throughput":
            run.reporter.log(f"times are the machine's for a run, with {run.machine.sessions} session(s) at once")

        best = self.best_so_far
        measured = measure_baselines(run, self.backends, best.offer_baselines, self._not_measured)
        best_single(measured, run.limits.budget)  # without one there is no run
        best.offer_baselines(measured)
        return measured

    @property
    def _not_measured(self) -> Mapping[tuple[str, str], str]:
        """Reasons why some are not measured on the whole model, by backend and variant."""
        far = dict(self.earlier.far) if self.earlier else {}
        if not self.model.unchecked:
            return far
        others = (backend for backend in self.backends if not backend.gives_reference)
        return {**far, **{(one.name, variant.name): UNCHECKED for one in others for variant in one.variants}}

    def on_threads_that_pay(self) -> Flow:
        """The same flow on fewer threads than the configuration allows, if as many do not pay."""
        run, target = self.run, self.run.config.target
        if target.threads == 1 or target.accelerated or run.config.search.objective != "latency":
            return self
        decided = run.attempt(
            lambda: threads_that_pay(run, self.backends, self.baselines), f"{target.threads} threads are used"
        )
        if isinstance(decided, Failure) or decided.used == target.threads:
            return self
        run.machine.close()
        run = run.on_threads(decided.used)
        return Flow(run, self.model, chosen_backends(run.config), self.earlier)

    @cached_property
    def searchable(self) -> SearchableModel:
        """The model as a graph whose parts can be placed."""
        return normalise(self.run, self.model)

    @cached_property
    def transferred(self) -> TransferredCosts | None:
        """Knowledge of this graph from the earlier run."""
        return TransferredCosts.of(self.earlier.run, self.searchable.graph) if self.earlier else None

    @cached_property
    def ranges(self) -> Ranges | None:
        """Of the graph's tensors, for int8."""
        return calibrated_ranges(self.run, self.searchable, self.backends)

    @cached_property
    def normalised(self) -> tuple[Baseline, ...]:
        """The baselines, with times of the normalised model where the file's times do not predict those of its
        parts."""
        baselines = self.baselines  # the first answer exists before the model is split
        return on_normalised(self.run, self.searchable.graph, baselines)

    @cached_property
    def matches(self) -> Matches:
        """Matches, and refusals of backends."""
        baselines, ranges = self.normalised, self.ranges
        return find_matches(self.run, self.searchable, self.model.digest, baselines, self.backends, ranges)

    @cached_property
    def precision(self) -> Precision:
        """Losses of operators in lower precisions."""
        matches = self.matches.matches  # the first answer exists before the model is split
        known = self.transferred.sensitivities if self.transferred else None
        return predict_losses(self.run, self.searchable, self.ranges, matches, known)

    @cached_property
    def expected(self) -> SearchSpace:
        """The space of the search at the costs that the baselines' times let expect."""
        run, graph, matches = self.run, self.searchable.graph, self.matches
        added = terms(run, graph, self.precision, matches.matches)
        return expected_space(graph, matches, added, known_ms(self.normalised))

    @cached_property
    def early(self) -> tuple[Mixture, ...]:
        """Likely mixtures of precisions, measured before the costs of a search that begins."""
        run, matches = self.run, self.matches
        if self.transferred:
            return ()
        key = costs_key(self.searchable.graph, matches, run.setting.target, run.config.policy)
        recorded = run.store.get(MIXTURES, EarlyMixtures)
        if recorded is not None and recorded.key == key:
            return recorded.mixtures
        if checkpoint.exists(run.directory):
            return ()
        try:
            space = self.expected
        except NotSearchable:
            return ()
        baseline_ms = known_ms(self.normalised)
        found = measure_early(run, space, self.baselines, baseline_ms, self.best_so_far)
        return run.store.put(MIXTURES, EarlyMixtures, EarlyMixtures(key, found)).mixtures

    def skips_search(self) -> bool:
        """Whether the run ends with its early mixtures: one suffices, and a search would exceed the planned time.

        The run decides once. If it has ended, or the user gave time for a search, a resumed run searches.
        """
        run = self.run
        goes_on = result_in(run.directory) is not None or run.config.search.seconds is not None
        if run.store.get(SEARCH_SKIPPED, bool) and goes_on:
            checkpoint.remove(run.directory)  # its genomes are of the expected space
            resume_search(run.store)

        def decide() -> bool:
            bounds, spent_s = search_bounds(run), time.monotonic() - run.begin
            exceeds = exceeds_planned_time(run.config, spent_s, pace_of(run, self.baselines, len(self.early)))
            return exceeds and suffices(self.early, known_ms(self.normalised), bounds)

        if skips := run.store.once(SEARCH_SKIPPED, bool, decide):
            run.reporter.log("the run skips the search, which takes long for this model: resume it to search")
        return skips

    @cached_property
    def tuning(self) -> Tuning:
        """The matches, including those of tuned kernels."""
        return tune_backends(self.run, self.searchable.graph, self.matches, self.backends)

    @cached_property
    def costs(self) -> MeasuredCosts:
        """The space of the search: the cost of each match, by the search's objective."""
        if self.run.store.get(SEARCH_SKIPPED, bool):
            return expected_costs(self.run, replace(self.expected, policy=self.run.config.policy))
        run, precision, matches = self.run, self.precision, self.tuning.matches
        graph = self.searchable.graph
        added = terms(run, graph, precision, matches.matches)
        sessions = run.machine.sessions  # with several, baselines have a share of the machine's time
        baseline_ms = {engine: ms * sessions for engine, ms in known_ms(self.normalised).items()}
        known = self.transferred.costs(run, matches, added) if self.transferred else None
        best_ms = min(known_ms(self.normalised).values(), default=0.0)
        measured = apportioned_ms(self.early, graph, self.matches.matches, best_ms)
        costs = gather_costs(run, graph, matches, self.backends, added, baseline_ms, known, measured)
        space = replace(costs.space, policy=run.config.policy)
        return replace(costs, space=space.costing(space.cost.for_sessions(sessions)))

    @cached_property
    def seeds(self) -> Seeds:
        """Initial placements of the search."""
        run, space, baseline_ms = self.run, self.costs.space, known_ms(self.normalised)
        corrections = corrections_by(self.early, space, run.limits.budget)
        seeds = make_seeds(space, answer_bounds(run), baseline_ms, corrections)
        return self.transferred.seeds(space, seeds) if self.transferred else seeds

    def search(self) -> SearchRecord:
        """The result of the search, continued from its checkpoint."""
        early = self.early  # before the costs
        skips = self.skips_search()
        space = self.costs.space
        known = in_space(early, space)
        if skips:
            return skipped_search(self.run, space, self.model, self.baselines, known)
        return evolve(self.run, space, self.seeds, self.model, self.baselines, self.best_so_far, known)

    def recall(self) -> SearchRecord:
        """The earlier result of the search. Nothing is measured."""
        space = self.costs.space
        return recorded_search(space, self.run.directory, fingerprint_of(self.run, space, self.model))

    def searched(self, find: Callable[[Flow], SearchRecord]) -> Searched | NotSearched:
        """The result of ``find``, such as :meth:`search`, and its context; or why there is none."""
        try:
            record = find(self)
            return Searched(self.searchable, self.tuning.tuned, self.costs, self.seeds, record)
        except NotSearchable as reason:
            return NotSearched(str(reason))

    def with_budget_levels(self, run: RunContext, searched: Searched, budget: float) -> Searched:
        """``searched``, and budget levels for ``budget``, measured now and saved in the checkpoint.

        Args:
            run: this one, within the limits of the answer.
            searched: earlier measurements.
            budget: the largest error of budget levels on samples of the search.
        """
        space = searched.costs.space
        baseline_ms = known_ms(self.normalised)
        record = with_mixtures_for_budget(run, space, searched.record, self.baselines, budget, baseline_ms)
        if record is not searched.record:
            fingerprint = fingerprint_of(self.run, space, self.model)
            saved = checkpoint.load(self.run.directory, fingerprint)
            checkpoint.save(self.run.directory, replace(saved, evaluated=record.evaluated), fingerprint)
        return replace(searched, record=record)

    def result(self) -> Result:
        """The answer, published as ``best.collage``, and all measurements, as ``result.json`` has them.

        If a stage fails after the first answer, the answer so far and the baselines are compared; that of a run that
        had ended stays.

        Raises:
            AnswerStays: that comparison failed too.
        """
        run, answered = self.run, self.delivery.answered
        before = result_in(run.directory) if answered else None
        if before is not None and before.schema != SCHEMA:
            before = None
        instead = "the answer stays" if before else "what is left of the run decides"
        found = run.attempt(lambda: self.searched(Flow.search), instead)
        if before is not None and isinstance(found, Failure):
            return before
        if isinstance(found, Failure):
            return self._of_what_is_left(NotSearched(found.message))
        if before is not None and found.measured == (before.search.evaluations if before.search else 0):
            run.reporter.log("nothing new was measured: the answer stays")
            if not (report := run.directory / REPORT).exists():  # a kill came between the two files
                write_html(report, before)
            return before
        ended = run.attempt(lambda: self.answer(run, found, self.delivery), instead)
        if not isinstance(ended, Failure):
            return ended
        if before is not None and self.delivery.answered == answered:
            return before
        return self._of_what_is_left(found)

    def _of_what_is_left(self, searched: Searched | NotSearched) -> Result:
        """The result of a comparison of the answer so far and the baselines. Raises as :meth:`result`."""
        run, best = self.run, self.best_so_far
        if best.placed is None:
            recorded = run.attempt(lambda: recorded_placement(run, self.delivery.best), "the answer so far stays")
            best.placed = None if isinstance(recorded, Failure) else recorded
        so_far = best.placed
        if so_far and (isinstance(searched, NotSearched) or so_far.placement.key not in searched.record.evaluated):
            searched = NotSearched(searched.reason if isinstance(searched, NotSearched) else "", so_far)
        if best.comparable:
            ended = run.attempt(lambda: self.answer(run, searched, self.delivery, True), "the answer so far stays")
            if not isinstance(ended, Failure):
                return ended
        raise AnswerStays(f"the run did not end: the answer so far is in {self.delivery.best}")

    def answer(
        self, run: RunContext, searched: Searched | NotSearched, delivery: Delivery, only_so_far: bool = False
    ) -> Result:
        """The winner of the race among placements of ``searched`` within the limits of ``run``; writes the result
        next to it.

        An answer that already lies at ``delivery`` takes part in the race, and stays unless it is beaten. If no
        placement is within the limits, the best single backend is the answer. ``only_so_far``: no other placement
        than the answer so far races.

        Raises:
            InputError: no placement could be compiled again, no baseline survived the race, or the answer is wrong.
        """
        best, levels = best_single(self.baselines, run.limits.budget), partial(self.with_budget_levels, run)
        compiled = CompiledCandidates(run, searched, levels)
        if only_so_far:
            compiled.keep(self.best_so_far.placed, delivery.best)
        else:
            compiled.compile(best.outcome, delivery.answered)
        keys = compiled.searched.keys
        incumbent = next((name for name, key in keys.items() if key == delivery.answered), delivery.answered)
        defaults = near_defaults(self.baselines, run.target, run.config.policy.single_give_up)
        verdict, held_out = hold_out(run, self.model, compiled, self.baselines, incumbent, defaults)
        made_of = {"name": self.model.name, "sha256": self.model.digest}
        details = {**held_out.info(run.setting), MODEL: made_of, OBJECTIVE: run.config.search.objective}
        artifact = artifact_of(verdict, compiled, self.baselines)
        answer = deliver(run, verdict.answer, artifact, delivery, details)
        compiled.remove()
        speeds = run.attempt(lambda: answer_speeds(run, verdict, answer), "the other speed is left out")
        result = Ended(
            run=run,
            model=self.model,
            searched=compiled.searched,
            baselines=self.baselines,
            defaults=defaults,
            verdict=verdict,
            held_out=held_out,
            answer=answer,
            speeds=None if isinstance(speeds, Failure) else speeds,
        ).result()
        write_result(delivery.directory / RESULT, result)
        run.attempt(lambda: write_html(delivery.directory / REPORT, result), "there is no report.html")
        return result


def evaluate(
    config: Config, directory: Path, reporter: Reporter, end: Callable[[Flow], T], file: ModelFile | None = None
) -> T:
    """Evaluate ``end`` on the flow of the run in ``directory``, such as :meth:`Flow.result`; recorded stages are not
    repeated.

    ``file``: the user's model, if the caller has parsed it already.

    Raises:
        CollageError: bad input or a missing backend; the message explains what to do.
    """
    with at_work(directory):
        config, file = settled(config, directory), file or model_file(config)
        backends = chosen_backends(config)
        config, earlier = begin_like(config, reporter, file)
        with open_run(config, directory, reporter, file) as (run, model):
            return end(Flow(run, model, backends, earlier))


def recorded_placement(run: RunContext, best: Path) -> Placed | None:
    """The answer so far in ``best``, which an earlier process of the run published; None if it is no placement.

    Raises:
        InputError: its record cannot be read.
    """
    (info,) = read_infos(best)
    regions = recorded_regions(info, len(info.get(REGIONS, ())))
    normalised = run.store.get(NORMALISED, Normalised)
    if normalised is None or not regions:
        return None
    return Placed(normalised.searchable(run.files).graph, Placement(regions))
