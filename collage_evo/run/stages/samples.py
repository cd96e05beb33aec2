"""Samples stage: samples of a run, taken and split once, and saved with the model's own outputs for them."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from collage_evo.accuracy.budget import EXACT
from collage_evo.accuracy.choose import fewest_samples
from collage_evo.accuracy.samples import (
    SHARED,
    Sample,
    Sizes,
    Split,
    plain_outputs,
    read_samples,
    split,
    write_samples,
)
from collage_evo.config import AccuracyConfig
from collage_evo.errors import InputError
from collage_evo.files import Stored
from collage_evo.graph.check.edges import chooses
from collage_evo.graph.check.nonfinite import nonfinite
from collage_evo.graph.ir.values import Values
from collage_evo.graph.load.distribution import Distribution, elements, representatives
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.graph.prepare import PreparedModel
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.slots import usable_cores
from collage_evo.run.context import Workplace
from collage_evo.run.samples import samples_in, shapes_of

SEARCH, SEARCH_BY_ERROR = 128, 32
"""Samples that each placement is judged on, unless the configuration sets the number; by the relative error fewer
where the model takes long. A metric needs more, because a few samples may have most of an error."""
DRAWN = 60
"""Shapes that stand for a range of sizes without data. Chosen: the standard error of the mean size is 0.7 % for
1..512, and 13 % for the mean product with a batch of 1..8."""
RANDOM = Sizes(calibration=16, search=8, held_out=16)
"""Random inputs are all alike, so few of them carry as much information."""
SEARCH_PART_SECONDS, SOON_SECONDS, HELD_OUT_SECONDS = 2.0, 0.25, 20.0
"""Seconds of the reference over each part, so that judging takes no longer than timing, and over the search's beyond
:data:`SEARCH_BY_ERROR`."""
HELD_OUT_BY_ERROR, HELD_OUT_SOON_SECONDS = 12, 8.0
"""Held-out samples that give the relative error, and seconds of the reference over them beyond that number: a metric
needs more. Chosen: 26 gave an interval of 3 % of the error, for an encoder of 24 layers."""
LEAST_SAMPLES, FEWEST_SAMPLES, OVERTIME = 4, 2, 4.0
"""The minimum of samples, unless they take so many times as long as these seconds; and the minimum then. Chosen."""
LEAST_SEARCHED = 8
"""The minimum of the search's, with the same exception. Chosen: a mixture of a text detector erred by 1.5, 3.2, 3.3
and 5.3 % on four samples."""
CHOICE_SECONDS, FEWEST_CHOICES, RUNS_FOR_NOISE = 10.0, 4, 8.0
"""Time for the noise of choices, seconds; the fewest samples for it; and how many runs one of them takes. Chosen."""
PARTS = ("calibration", "search", "held_out")
PART_BYTES, HELD_OUT_BYTES = 2**29, 2**30
"""Bytes of inputs and outputs of a part of the samples, on disk and in the memory of the judging process. Held-out
samples are judged a few times only. Fewer decide by chance: of 85 lines of text, whose scores are 3 MB each, one line
is more than 1 %."""


@dataclass(frozen=True)
class Sampled:
    """Number of samples of each part, and of all; and whether they are random numbers."""

    calibration: int
    search: int
    held_out: int
    total: int
    random: bool

    @property
    def shared(self) -> bool:
        """Whether all parts are the same samples, because there are too few."""
        return not self.random and self.total <= SHARED


SAMPLES = Stored("work/samples.json", Sampled)


def _part(run: Workplace, name: str) -> Path:
    return run.work / f"{name}.npz"


def own_samples(run: Workplace, file: ModelFile) -> Split[Sample] | None:
    """The user's own samples, split: a resumed run reads the recorded ones.

    None if none were given. ``file``: the model that they are for.

    Raises:
        InputError: they cannot be read, none has the run's shapes, or there is a metric and nothing to measure it on.
    """
    config = run.config
    if (recorded := run.store.get(SAMPLES)) is not None:
        calibration, search, held_out = (read_samples(_part(run, name)) for name in PARTS)
        return None if recorded.random else Split(calibration, search, held_out, recorded.total)
    samples = samples_in(config, run.open_shapes or config.model.one_profile(), file)
    if config.accuracy.metric and not samples:
        raise InputError("accuracy.metric needs data to measure it on: give them with --data (data.source)")
    return split(samples, sizes_of(config.accuracy), config.accuracy.seed) if samples else None


def sizes_of(accuracy: AccuracyConfig) -> Sizes:
    """The most samples of each part of the user's."""
    return Sizes(accuracy.calibration, accuracy.search or SEARCH, accuracy.held_out)


def random_samples(model: onnx.ModelProto, shapes: OpenShapes) -> Split[Sample]:
    """Random inputs of many of ``shapes``."""
    drawn = enumerate(shapes.drawn(DRAWN, seed=0))
    return split([Sample(random_inputs(model, 2000 + index, one)) for index, one in drawn], RANDOM, seed=0)


def timed_samples(samples: Sequence[Sample]) -> tuple[list[Values], tuple[float, ...]]:
    """Inputs for the references of an open model: those that are timed, with their weights in the latency, the one in
    the middle of the total time first; then those of the smallest and the largest shape."""
    distribution = Distribution.of(map(shapes_of, samples))
    inputs = [next(one.feeds for one in samples if shapes_of(one) == shape) for shape in distribution.shapes]
    chosen = representatives(distribution.shapes, distribution.counts)
    time = np.cumsum([one.weight * elements(distribution.shapes[one.place]) for one in chosen])
    middle = chosen[np.searchsorted(time, time[-1] / 2)]
    timed = sorted(chosen, key=lambda one: one is not middle)
    by_size = sorted(inputs, key=lambda feeds: sum(value.size for value in feeds.values()))
    return [*(inputs[one.place] for one in timed), by_size[0], by_size[-1]], tuple(one.weight for one in timed)


def samples_by_size(run: Workplace) -> tuple[Distribution, list[Sample]]:
    """The distribution of the samples' shapes, and of each shape the first sample, smallest first."""
    every = [one for name in PARTS for one in read_samples(_part(run, name))]
    first = {str(shapes_of(one)): one for one in reversed(every)}
    return Distribution.of(map(shapes_of, every)), sorted(first.values(), key=lambda one: elements(shapes_of(one)))


def keep_samples(run: Workplace, model: PreparedModel, samples: Split[Sample] | None) -> Sampled:
    """Write the samples for later stages and worker processes; random ones if the user gave none.

    The search's have the outputs that the model itself computes, as many as are computed quickly; they are chosen
    here once, so that all placements are judged on the same ones. The first are those of the references.
    """
    if samples and not run.config.verify.keeps_nonfinite:
        require_finite(model, samples.every)
    parts = samples or _random_samples(run, model)
    requested = run.config.accuracy.search or (SEARCH if run.config.accuracy.metric else SEARCH_BY_ERROR)
    fewest = fewest_samples(run.config.accuracy.metric)

    def seconds(count: int) -> float:
        if LEAST_SAMPLES <= count < LEAST_SEARCHED and count >= fewest:
            return OVERTIME * SEARCH_PART_SECONDS
        return math.inf if count < fewest else SEARCH_PART_SECONDS if count < requested else SOON_SECONDS

    search = expected_of(model, parts.search, seconds)
    left = parts.search[len(search) :] if parts.total > SHARED else ()  # the search has not seen these either
    calibration = _within_bytes(parts.calibration)
    held_out = _within_bytes((*parts.held_out, *left)[: run.config.accuracy.held_out])
    for name, part in (("calibration", calibration), ("held_out", held_out), ("search", search)):
        write_samples(_part(run, name), part)
    return Sampled(len(calibration), len(search), len(held_out), parts.total, random=samples is None)


def require_finite(model: PreparedModel, samples: Sequence[Sample]) -> None:
    """Require that NaN and infinity among inputs, for example of a mask, do not reach the outputs of ``model``: such
    outputs have no error. Checks as many samples as run quickly.

    Raises:
        InputError: they do.
    """
    odd = [sample for sample in samples if nonfinite(sample.feeds)]
    for sample in expected_of(model, odd, lambda count: SOON_SECONDS):
        if output := nonfinite(sample.expected):
            raise InputError(
                f"a sample holds NaN or infinity in {nonfinite(sample.feeds)!r}, and so does the model's own "
                f"{output!r} then: remove such samples from the data, or keep them with -s verify.nonfinite=kept"
            )


def calibration_feeds(run: Workplace) -> tuple[Any, ...]:
    """Inputs by name of each sample that calibrates int8 ranges."""
    return tuple(sample.feeds for sample in read_samples(_part(run, "calibration")))


def held_out_samples(run: Workplace, model: PreparedModel) -> Path:
    """The file of the held-out samples with the model's own outputs, as many as are computed quickly."""
    path = _part(run, "judged_last")
    if not path.exists():
        samples, metric = read_samples(_part(run, "held_out")), run.config.accuracy.metric

        def seconds(count: int) -> float:
            if count < fewest_samples(metric):
                return math.inf
            return HELD_OUT_SECONDS if metric or count < HELD_OUT_BY_ERROR else HELD_OUT_SOON_SECONDS

        if samples:
            write_samples(path, expected_of(model, samples, seconds, HELD_OUT_BYTES))
    return path


def with_noise_of_samples(run: Workplace, model: PreparedModel) -> PreparedModel:
    """``model`` with its noise on the samples that judge its choices, if it makes any."""
    if not chooses(model.original):
        return model
    samples = read_samples(run.files.search)
    if len(samples) < _counted(model) and (held_out := held_out_samples(run, model)).exists():
        samples += read_samples(held_out)
    return noise_of_choices(model, samples)


def noise_of_choices(model: PreparedModel, samples: Sequence[Sample]) -> PreparedModel:
    """``model`` with its noise on ``samples`` too: nearly equal scores change places in few samples only.

    Takes as many samples as take ``CHOICE_SECONDS``, but a few at least.
    """
    pairs = [(sample.feeds, sample.expected) for sample in samples[: _counted(model)]]
    return model.with_noise(pairs, len(usable_cores())) if pairs else model


def _counted(model: PreparedModel) -> int:
    return max(FEWEST_CHOICES, int(CHOICE_SECONDS / max(RUNS_FOR_NOISE * model.run_s, 1e-9)))


def expected_of(
    model: PreparedModel, samples: Sequence[Sample], seconds: Callable[[int], float], most: int = PART_BYTES
) -> tuple[Sample, ...]:
    """``samples`` with the outputs of ``model`` in float32: as many as take ``seconds``, which may depend on their
    number, and ``most`` bytes, but at least a few. Inputs of the references are not run again, but their time counts.
    """
    names = [value.name for value in model.original.graph.output]
    known = {id(feeds): expected for feeds, expected in model.references}
    reference = functools.cache(lambda: Reference(model.original, len(usable_cores())))
    spent_s = 0.0

    def with_outputs() -> Iterator[Sample]:
        nonlocal spent_s
        for sample in samples:
            expected, took_s = known.get(id(sample.feeds)), model.run_s
            if expected is None:
                session, began = reference(), time.monotonic()
                expected = plain_outputs(names, session.run(sample.feeds))
                took_s = time.monotonic() - began
            spent_s += took_s
            yield replace(sample, expected=expected)

    def more(count: int) -> bool:
        overtime = 1.0 if count >= LEAST_SAMPLES else OVERTIME
        return spent_s < overtime * seconds(count)

    return _within_bytes(with_outputs(), more, most, FEWEST_SAMPLES)


def _within_bytes(
    samples: Iterable[Sample],
    more: Callable[[int], bool] = lambda count: True,
    most: int = PART_BYTES,
    least: int = LEAST_SAMPLES,
) -> tuple[Sample, ...]:
    """The first samples as long as they are not too large and ``more`` may come; at least one, if small ``least``."""
    first: list[Sample] = []
    size = 0
    for sample in samples:
        first.append(sample)
        size += sum(_bytes(value) for group in (sample.feeds, sample.expected) for value in group.values())
        if size > most or (len(first) >= least and not more(len(first))):
            break
    return tuple(first)


def _bytes(value: Any) -> int:
    return sum(map(_bytes, value)) if isinstance(value, list) else int(np.asarray(value).nbytes)


def _random_samples(run: Workplace, model: PreparedModel) -> Split[Sample]:
    """Random inputs: those of the output checks, and more like them; none if only float32 may answer, for which the
    checks suffice, and sizes are fixed."""
    if open_shapes := run.open_shapes:
        return random_samples(model.original, open_shapes)
    if run.config.accuracy.budget == EXACT:
        return Split((), (), (), 0)
    checked = [Sample(feeds) for feeds, _ in model.references[: run.config.verify.inputs]]
    shapes = {name: value.shape for name, value in checked[0].feeds.items() if isinstance(value, np.ndarray)}
    count = RANDOM.calibration + RANDOM.search + RANDOM.held_out
    feeds = (random_inputs(model.original, 2000 + index, shapes, model.fixed) for index in range(count))
    samples = tuple(map(Sample, feeds))
    ends = (RANDOM.calibration, RANDOM.calibration + RANDOM.search)
    search = (*checked, *samples[ends[0] : ends[1]])[: RANDOM.search]
    return Split(samples[: ends[0]], search, samples[ends[1] :], count)
