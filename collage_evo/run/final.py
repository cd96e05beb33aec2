"""Last row of a plan: what was found, compared with the single backends, and the answer delivered with its result."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from collage_evo.answer.answer import ITSELF, Proof, Verdict
from collage_evo.answer.baselines import Baseline, best_single, near_defaults
from collage_evo.answer.delivery import MODEL, OBJECTIVE, Delivery
from collage_evo.answer.race import Race
from collage_evo.answer.sequential import Ratio
from collage_evo.answer.so_far import read_so_far
from collage_evo.errors import CollageError, InputError
from collage_evo.genome.failure import Failure
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.finished import RESULT, write_result
from collage_evo.report.html import REPORT, write_html
from collage_evo.report.places import ANNOTATED
from collage_evo.report.result import Result
from collage_evo.run.annotated import write_annotated
from collage_evo.run.budget import REPORT_S
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import in_time
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Seconds
from collage_evo.run.result import run_result
from collage_evo.run.search import Found, Searched, found_so_far
from collage_evo.run.stages.answer import Answer, answer_speeds, decide, deliver, traced
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.stages.compile import CompiledCandidates
from collage_evo.run.stages.evolve import fingerprint_of
from collage_evo.run.stages.held_out import UNJUDGED, HeldOut, artifact_of, hold_out
from collage_evo.run.stages.mixtures import with_mixtures_for_budget
from collage_evo.run.stages.samples import SAMPLES
from collage_evo.search.evolution import checkpoint

MIXTURES = 4
"""Mixtures that are measured at most for a budget after a search. Chosen: two levels of two families."""


def compared(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    found: Found,
    so_far: Publisher,
    delivery: Delivery,
    seconds: Seconds,
) -> Result:
    """The winner of the race among placements of ``found`` within the limits of ``run``, and the result next to it.

    An answer that already lies at ``delivery`` takes part in the race, and stays unless it is beaten. If no placement
    is within the limits, the best single backend is the answer. If the run's time is over first, it is the answer
    ``so_far``, without a comparison.

    Raises:
        InputError: no placement could be compiled again, no baseline survived the race, or the answer is wrong.
    """
    compiled = CompiledCandidates(run, found, partial(with_mixtures, run, model, single, most=MIXTURES))
    best = best_single(single, run.limits.budget).outcome
    prepare = partial(compiled.compile, best, delivery.answered)
    return _delivered(run, model, single, compiled, prepare, so_far, delivery, seconds)


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
    compiled = CompiledCandidates(run, found, partial(with_mixtures, run, model, single, most=MIXTURES))
    prepare = partial(compiled.keep, so_far.placed, delivery.best)
    return _delivered(run, model, single, compiled, prepare, so_far, delivery, seconds)


def with_mixtures(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    searched: Searched,
    budget: float,
    most: int | None = None,
) -> Searched:
    """``searched``, and mixtures for ``budget``, measured now and saved in the checkpoint.

    Args:
        run: this one, within the limits of the answer.
        model: the user's own.
        single: the single backends.
        searched: earlier measurements.
        budget: the largest error of mixtures on samples of the search.
        most: number of mixtures at most, the likeliest ones; None for all.
    """
    space, baseline_ms = searched.costs.space, searched.baseline_ms
    record = with_mixtures_for_budget(run, space, searched.record, single, budget, baseline_ms, most)
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
    prepare: Callable[[], object],
    so_far: Publisher,
    delivery: Delivery,
    seconds: float,
) -> Result:
    """The result of a race of ``compiled``, which ``prepare`` fills, and of baselines."""
    found, speeds = compiled.searched, None
    defaults = near_defaults(single, run.target, run.config.policy.single_give_up)
    race = partial(_decided, run, model, single, compiled, prepare, delivery, defaults, seconds)
    decided = in_time(race, REPORT_S)
    if decided:
        verdict, held_out, answer = decided
        found = compiled.searched
        measured = in_time(
            lambda: run.attempt(lambda: answer_speeds(run, verdict, answer), "the other speed is left out"), REPORT_S
        )
        speeds = None if isinstance(measured, Failure) else measured
        with_kernels = in_time(
            lambda: run.attempt(lambda: traced(run, answer), "the report has no times of operators"), REPORT_S
        )
        answer = with_kernels if isinstance(with_kernels, Answer) else answer
    else:
        run.reporter.log("time was over before the final comparison ended: the answer so far stays")
        if compiled.excluded:  # the answer so far may be one of them
            so_far.withdraw(best_single(single))
        found, defaults = found_so_far(found, so_far.placed), ()
        verdict, held_out, answer = not_compared(run, single, found, delivery)
    compiled.remove()
    result = run_result(
        run=run,
        model=model,
        found=found,
        baselines=single,
        defaults=defaults,
        verdict=verdict,
        held_out=held_out,
        answer=answer,
        speeds=speeds,
    )
    write_result(delivery.directory / RESULT, result)
    try:
        if in_time(partial(write_annotated, delivery.directory), 0.0) is None:
            run.reporter.log(f"there was no time for {ANNOTATED}: export --onnx writes it")
    except (OSError, CollageError) as error:  # the answer and its result stand
        run.reporter.log(f"there is no {ANNOTATED}: {error}")
    run.attempt(lambda: write_html(delivery.directory / REPORT, result), "there is no report.html")
    return result


def _decided(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    compiled: CompiledCandidates,
    prepare: Callable[[], object],
    delivery: Delivery,
    defaults: Sequence[Baseline],
    seconds: float,
) -> tuple[Verdict, HeldOut, Answer]:
    """The verdict of the race, the winner's errors on held-out samples, and the winner delivered."""
    prepare()
    keys = compiled.searched.keys
    incumbent = next((name for name, key in keys.items() if key == delivery.answered), delivery.answered)
    race = partial(decide, run, seconds=seconds, incumbent=incumbent, defaults=defaults)
    verdict, held_out = hold_out(run, model, compiled, single, race)
    made_of = {"name": model.name, "sha256": model.digest}
    details = {**held_out.info(run.setting), MODEL: made_of, OBJECTIVE: run.config.search.objective}
    artifact = artifact_of(verdict, compiled, single)
    return verdict, held_out, deliver(run, verdict.answer, artifact, delivery, details)


def not_compared(
    run: RunContext, single: Sequence[Baseline], found: Found, delivery: Delivery
) -> tuple[Verdict, HeldOut, Answer]:
    """The answer so far, for which there was no time to be compared or judged on held-out samples.

    Nothing is known of how far its speed-up is from the ratio of the earlier times: that has no rounds.
    """
    known, best = read_so_far(delivery.best), best_single(single, run.limits.budget)
    if known is None or (sampled := run.store.get(SAMPLES)) is None:
        raise InputError(f"{delivery.best} or {run.work} is no record of a run: start it again with --overwrite")
    same = (one for one in single if one.keeps(run.limits.budget) and one.outcome.latency_ms == known.latency_ms)
    best = best if found.keys else next(same, best)
    name = next(iter(found.keys), best.name)
    times_ms = {best.name: best.outcome.latency_ms or 0.0, name: known.latency_ms}
    ratio = Ratio(times_ms[best.name] / known.latency_ms, 0.0, sys.float_info.max, ())
    final = Race({name: (((ms,),),) for name, ms in times_ms.items()}, {})
    verdict = Verdict(name, best.name, ratio if found.keys else ITSELF, name, ratio, final, proof=Proof.NONE)
    error = math.nan if known.error is None else known.error
    return verdict, HeldOut(None, sampled, notes=(UNJUDGED,)), Answer(delivery.best, (), error, math.nan)
