"""Sizes stage: the winner of the race and the libraries in turns at several sizes of the inputs, if those are open.

A placement with the least expected latency may still be slower than a library at some sizes, for example where
another library has the better kernel for long inputs. It is then left out: an open answer is for every size.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from collage_evo.accuracy.samples import Sample, write_samples
from collage_evo.answer.answer import Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.race import LAYOUT, Race
from collage_evo.answer.sequential import FEWEST, Ratio
from collage_evo.config_model import has_ranges
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import SampleJob
from collage_evo.fitness.machine import Process
from collage_evo.genome.failure import Failure
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.sizes import ANSWER, ROWS, LatencyBySize, describe_open, size_of
from collage_evo.report.stage import Stage
from collage_evo.report.words import format_engine, format_ratio
from collage_evo.run.context import RunContext
from collage_evo.run.samples import shapes_of
from collage_evo.run.stages.samples import samples_by_size
from collage_evo.runtime.timing import LONG_S

ROUNDS, SECONDS = 6, 15.0
"""Rounds at all sizes, of which those after the third begin within so many seconds. Chosen: six rounds of a network
of 5 ms take 4 s."""
ROWS_OF_LONG = 3
"""Sizes at which a model is timed whose runs take :data:`LONG_S`: the smallest, the middle and the largest."""
SLOWER = 0.98
"""Speed-up over a library below which a contestant is slower at a size, if the interval is below 1. Chosen: what
the race resolves."""
Times = Mapping[str, Sequence[float]]
"""Median ms in each round, by name in the race."""


@dataclass(frozen=True)
class BySize:
    """Latencies by size of the winner of a race and of libraries; None where sizes are fixed.

    ``slow``: if the winner is slower than a library in float32 at some size, or fails there, the reason for it, and
    then for each other placement of the race that is slower or fails at one of these sizes, by name: where it is
    slowest.
    """

    table: LatencyBySize | None = None
    slow: Mapping[str, str] = field(default_factory=dict)


def times_by_size(
    run: RunContext,
    model: PreparedModel,
    verdict: Verdict,
    artifact: Path,
    placements: Mapping[str, Path],
    baselines: Sequence[Baseline],
) -> BySize:
    """Time the winner of a race, its ``artifact``, and the libraries on sizes of an open run: those of the samples,
    and the largest of the ranges if there are any.

    The libraries are those that raced, and the fastest of each in float32. Only these are rivals: what is faster in
    another precision at one size is slower in the expected latency. A second measurement, in other processes,
    confirms that the winner is slower, and finds which ``placements`` are too. The user is told of a library that
    fails.

    Raises:
        InputError: the winner failed, and is a library in float32.
    """
    if (shapes := run.open_shapes) is None:
        return BySize()
    (distribution, every), ranges = samples_by_size(run), has_ranges(run.config.model.shapes)
    if ranges and not any(shapes_of(one) == shapes.largest for one in every):
        every.append(Sample(random_inputs(model.original, 0, shapes.largest)))
    exact = [one for one in baselines if one.exact and one.outcome.latency_ms is not None]
    by_time = sorted(exact, key=lambda one: one.outcome.latency_ms or 0.0, reverse=True)
    fastest = {one.backend: one for one in by_time}.values()
    libraries = {one.name: one for one in baselines if one in fastest or one.name in verdict.final.rounds}
    winner = libraries.pop(verdict.answer, None)
    long = verdict.final.timing(verdict.answer).median_ms >= LONG_S * 1e3
    places = np.linspace(0, len(every) - 1, ROWS_OF_LONG if long else ROWS, dtype=int).tolist()
    samples = [every[place] for place in dict.fromkeys(places)]
    paths = {name: one.artifact for name, one in libraries.items()}
    times, failed = _in_turns(run, verdict.final, {verdict.answer: artifact, **paths}, samples)
    exact_winner = winner is not None and winner.exact
    if (why := failed.pop(verdict.answer, "")) and exact_winner:
        raise InputError(f"{verdict.answer} {why}")
    if why:
        return BySize(slow={verdict.answer: why})
    words = {name: format_engine(one.backend, one.variant) for name, one in libraries.items()}
    for name, reason in failed.items():
        run.reporter.log(f"{words[name]} is not compared by size: {reason}")
    words[verdict.answer] = ANSWER
    measured = [
        (shapes_of(sample), {words[name]: median(ms) for name, ms in one.items()})
        for sample, one in zip(samples, times, strict=True)
    ]
    served = describe_open(shapes, distribution, ranges, run.config.data.source is None)
    table = LatencyBySize.of(shapes, distribution, measured, served)
    rivals = {name: paths[name] for name, one in libraries.items() if one.exact and name not in failed}
    level = run.config.policy.race_level
    both = zip(samples, times, strict=True)
    suspects = [sample for sample, ms in both if _faster(ms, verdict.answer, rivals, level)]
    if not suspects or exact_winner:
        return BySize(table)
    again, broken = _in_turns(run, verdict.final, {verdict.answer: artifact, **placements, **rivals}, suspects)
    what, size = size_of(shapes)
    faster = [
        (gain, name, f"at {what} {size(shapes_of(sample))} {words[library]} is {format_ratio(gain)} times as fast")
        for sample, ms in zip(suspects, again, strict=True)
        for name in {verdict.answer, *placements}.intersection(ms)
        for library, gain in _faster(ms, name, rivals, level).items()
    ]
    slow = {name: reason for _, name, reason in sorted(faster)}
    slow |= {name: reason for name, reason in broken.items() if name not in rivals}
    return BySize(table, {verdict.answer: slow[verdict.answer], **slow} if verdict.answer in slow else {})


def _faster(ms: Times, name: str, rivals: Collection[str], level: float) -> dict[str, float]:
    """The ``rivals`` that are clearly faster than ``name`` at a size, and how many times as fast they are."""
    logs = ((rival, np.log(np.divide(ms[rival], ms[name])).tolist()) for rival in ms.keys() & rivals)
    ratios = {rival: Ratio.of(rounds, 1.0 - level, shared=2 * LAYOUT**2) for rival, rounds in logs}
    return {rival: 1.0 / one.estimate for rival, one in ratios.items() if one.estimate < SLOWER and one.high < 1.0}


def _in_turns(
    run: RunContext, raced: Race, artifacts: Mapping[str, Path], samples: Sequence[Sample]
) -> tuple[list[Times], dict[str, str]]:
    """Times on each of ``samples``; of those that failed none, but where and why.

    Each of ``artifacts`` stays loaded in a process of its own, if there is memory for all. If not, by what ``raced``
    took, each is loaded by itself in every round.
    """
    assert run.open_shapes is not None
    what, size = size_of(run.open_shapes)
    files = [run.work / f"size_{place}.npz" for place in range(len(samples))]
    for file, sample in zip(files, samples, strict=True):
        write_samples(file, [sample])
    known = {name: one.peak_bytes for name, one in raced.serving.items()}
    largest = max(known.values(), default=0)
    all_fit = sum(known.get(name, largest) for name in artifacts) <= run.machine.memory_bytes
    times: list[dict[str, list[float]]] = [{name: [] for name in artifacts} for _ in samples]
    failed = dict[str, str]()
    with run.stage(Stage.SIZES), run.machine.exclusive() as fresh_process, ExitStack() as stack:
        processes, began = dict[str, Process](), time.monotonic()
        for number in range(ROUNDS):
            if number >= FEWEST and time.monotonic() - began > SECONDS:
                break
            order = list(artifacts) if number % 2 else list(artifacts)[::-1]  # a drift affects all alike
            for together in [order] if all_fit else [[name] for name in order]:
                for file, ms, sample in zip(files, times, samples, strict=True):
                    for name in (one for one in together if one not in failed):
                        if name not in processes:
                            processes[name] = stack.enter_context(fresh_process())
                        job = SampleJob(str(artifacts[name]), str(file), number == 0 or not all_fit)
                        timed = processes[name].call(job, run.machine.timeout_s)
                        if isinstance(timed, Failure):
                            failed[name] = f"failed at {what} {size(shapes_of(sample))}: {timed}"
                        else:
                            ms[name].append(median(timed.times_ms))
                if not all_fit and (process := processes.pop(together[0], None)):
                    process.close()
    return [{name: ms for name, ms in one.items() if name not in failed} for one in times], failed
