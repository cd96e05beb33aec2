"""Last row of a plan: what was found, compared with the single backends, and the answer delivered with its result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from collage_evo.answer.baselines import best_single, near_defaults
from collage_evo.answer.delivery import MODEL, OBJECTIVE, Delivery
from collage_evo.genome.failure import Failure
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.finished import RESULT, write_result
from collage_evo.report.html import REPORT, write_html
from collage_evo.report.result import Result
from collage_evo.run.context import RunContext
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Seconds
from collage_evo.run.result import run_result
from collage_evo.run.search import Found, Searched
from collage_evo.run.stages.answer import answer_speeds, decide, deliver
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.stages.compile import CompiledCandidates
from collage_evo.run.stages.evolve import fingerprint_of
from collage_evo.run.stages.held_out import artifact_of, hold_out
from collage_evo.run.stages.mixtures import with_mixtures_for_budget
from collage_evo.search.evolution import checkpoint


def compared(
    run: RunContext, model: PreparedModel, single: Baselines, found: Found, delivery: Delivery, seconds: Seconds
) -> Result:
    """The winner of the race among placements of ``found`` within the limits of ``run``, and the result next to it.

    An answer that already lies at ``delivery`` takes part in the race, and stays unless it is beaten. If no placement
    is within the limits, the best single backend is the answer.

    Raises:
        InputError: no placement could be compiled again, no baseline survived the race, or the answer is wrong.
    """
    compiled = CompiledCandidates(run, found, partial(with_mixtures, run, model, single))
    compiled.compile(best_single(single, run.limits.budget).outcome, delivery.answered)
    return _delivered(run, model, single, compiled, delivery, seconds)


def compared_so_far(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    found: Found,
    so_far: Publisher,
    delivery: Delivery,
    seconds: Seconds,
) -> Result:
    """The same, where no other placement races than the answer so far."""
    compiled = CompiledCandidates(run, found, partial(with_mixtures, run, model, single))
    compiled.keep(so_far.placed, delivery.best)
    return _delivered(run, model, single, compiled, delivery, seconds)


def with_mixtures(
    run: RunContext, model: PreparedModel, single: Baselines, searched: Searched, budget: float
) -> Searched:
    """``searched``, and mixtures for ``budget``, measured now and saved in the checkpoint.

    Args:
        run: this one, within the limits of the answer.
        model: the user's own.
        single: the single backends.
        searched: earlier measurements.
        budget: the largest error of mixtures on samples of the search.
    """
    space, baseline_ms = searched.costs.space, searched.baseline_ms
    record = with_mixtures_for_budget(run, space, searched.record, single, budget, baseline_ms)
    if record is not searched.record:
        fingerprint = fingerprint_of(run, space, model)
        saved = checkpoint.load(run.directory, fingerprint)
        checkpoint.save(run.directory, replace(saved, evaluated=record.evaluated), fingerprint)
    return replace(searched, record=record)


def _delivered(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    compiled: CompiledCandidates,
    delivery: Delivery,
    seconds: float,
) -> Result:
    keys = compiled.searched.keys
    incumbent = next((name for name, key in keys.items() if key == delivery.answered), delivery.answered)
    defaults = near_defaults(single, run.target, run.config.policy.single_give_up)
    race = partial(decide, run, seconds=seconds, incumbent=incumbent, defaults=defaults)
    verdict, held_out = hold_out(run, model, compiled, single, race)
    made_of = {"name": model.name, "sha256": model.digest}
    details = {**held_out.info(run.setting), MODEL: made_of, OBJECTIVE: run.config.search.objective}
    artifact = artifact_of(verdict, compiled, single)
    answer = deliver(run, verdict.answer, artifact, delivery, details)
    compiled.remove()
    speeds = run.attempt(lambda: answer_speeds(run, verdict, answer), "the other speed is left out")
    result = run_result(
        run=run,
        model=model,
        found=compiled.searched,
        baselines=single,
        defaults=defaults,
        verdict=verdict,
        held_out=held_out,
        answer=answer,
        speeds=None if isinstance(speeds, Failure) else speeds,
    )
    write_result(delivery.directory / RESULT, result)
    run.attempt(lambda: write_html(delivery.directory / REPORT, result), "there is no report.html")
    return result
