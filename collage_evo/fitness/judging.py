"""Error bounds and errors of a session's outputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.invariance import Invariance, measure_invariance
from collage_evo.accuracy.judge import Judgement, judge, judge_closely, run_samples
from collage_evo.accuracy.losses import Pairs
from collage_evo.accuracy.metric import Metric
from collage_evo.accuracy.samples import Sample, read_samples
from collage_evo.backends.select import exact_arithmetic
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import Setting
from collage_evo.fitness.references import Reference, read_references
from collage_evo.genome.failure import Failed, Failure, Fault
from collage_evo.graph.check.edges import DECIDED
from collage_evo.graph.check.nonfinite import lost
from collage_evo.graph.ir.values import identical, plain
from collage_evo.graph.reference.distance import Error, counted_distances, holds_labels
from collage_evo.graph.reference.noise import ROOM, Noise, differing
from collage_evo.patterns.match import Placement
from collage_evo.pruning import LARGE_ERROR, SLOW_JUDGING
from collage_evo.runtime.session import Session

BROKEN = 1.0
"""Relative error from which on a result is unrelated to its reference, in any precision."""
LATE_ERROR = 2.0
"""After many runs the error of a result in a lower precision may be so many times that of the first run."""
FEW = 2
"""Samples that estimate the error of a placement in a lower precision before all judge it. Chosen."""
PART = 4
"""For a placement that is behind, one sample in so many estimates the drop of a metric, which needs more than few."""


@dataclass(frozen=True)
class Estimate:
    """The error on few samples: on all of them, and without the sample with the largest error.

    A single sample can cause most of an error, for example where a classifier's label changes. ``pairs``: the samples
    and their outputs.
    """

    error: float
    least: float
    pairs: Pairs = ()


class Judge:
    """Compares outputs with references by the rules of one run. Samples and metric are loaded when first needed.

    What breaks a rule raises :class:`Failed`.

    ``wall`` and ``processor`` are clocks in seconds: of the world, and of what this process used.
    """

    def __init__(
        self,
        setting: Setting,
        wall: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._setting, self._limits = setting, setting.limits
        self._wall, self._processor = wall, processor

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of the search."""
        return read_samples(self._setting.files.search)

    @cached_property
    def metric(self) -> Metric:
        return load_metric(self._setting.metric, self._limits.excused, self._setting.metric_sha256)

    @cached_property
    def _reference_score(self) -> float | None:
        """The score of the model itself on the samples of the search, by the metric."""
        return self.metric.reference(self.samples)

    @cached_property
    def _nonfinite(self) -> list[Reference]:
        return read_references(self._setting.files.nonfinite)

    @cached_property
    def _edges(self) -> list[Reference]:
        return read_references(self._setting.files.edges)

    def bound(self, exact: bool) -> float:
        """The largest relative error of a correct piece."""
        return self._limits.of_pieces if exact else max(self._limits.of_pieces, BROKEN)

    def whole_bound(self, exact: bool) -> float:
        """The largest relative error of the model's own outputs; in a lower precision only a metric decides, if there
        is one.

        The number of detected objects may differ, and with it the shape of an output.
        """
        if exact:
            return self._limits.tolerance
        return math.inf if self._setting.metric else max(self._limits.tolerance, BROKEN)

    def late_bound(self, exact: bool, first: Error) -> float:
        """The largest relative error after many runs, if ``first`` was the error of the first one."""
        return self._limits.tolerance if exact else max(self._limits.tolerance, LATE_ERROR * first.relative)

    def check(self, session: Session, references: Sequence[Reference], exact: bool, when: str = "") -> Error:
        """The largest errors over ``references``; ``when`` a failure occurs ends its message."""
        worst = Error(0.0, 0.0)
        for feeds, expected in references:
            error = self._apart(plain(session.run(list(expected), feeds)), expected, exact)
            worst = Error(max(worst.relative, error.relative), max(worst.max_abs, error.max_abs))
            self.accept(session, feeds, error, self.whole_bound(exact), when)
        return worst

    def check_edges(self, session: Session, exact: bool) -> None:
        """Check float32 results for inputs that random ones hardly reach; lower precisions lose more there."""
        for feeds, expected in self._edges if exact else ():
            outputs = plain(session.run(list(expected), feeds))
            # In these samples rounding decides nothing, so it excuses no more than moved the outputs there.
            error, bound = self._apart(outputs, expected, exact, {}), ROOM * DECIDED
            when = ", for ties, large or tiny numbers as inputs"
            self.accept(session, feeds, error, max(self.whole_bound(exact), bound), when)

    def keep_nonfinite(self, session: Session, references: Sequence[Reference] | None = None) -> None:
        """Check that NaN and infinity stay where they must: of the whole model, or on ``references``."""
        if not self._setting.keeps_nonfinite:
            return
        for feeds, expected in self._nonfinite if references is None else references:
            if lost(plain(session.run(list(expected), feeds)), list(expected.values())):
                lossy = "NaN or infinity in its inputs gets lost: verify.nonfinite is kept"
                raise Failed(Failure(Fault.NOT_FINITE, lossy))

    def check_last(self, session: Session, reference: Reference, exact: bool, first: Error, runs: int) -> None:
        """Check the last of many ``runs``, on inputs for which the first one had the error ``first``."""
        feeds, expected = reference
        last = self._apart([plain(session.read(name)) for name in expected], expected, exact)
        self.accept(session, feeds, last, self.late_bound(exact, first), f" (after {runs} runs)")

    def accept(
        self, session: Session, feeds: Mapping[str, Any], error: Error, bound: float, when: str = ""
    ) -> None:
        """Raise Failed if the run with this ``error`` is wrong; ``when`` it is ends the message."""
        if not math.isfinite(error.relative) and math.isfinite(bound):
            unlike = f"outputs are not finite, or of another shape{when}"
            raise Failed(Failure(Fault.NOT_FINITE, unlike, error.relative))
        if error.relative > bound:
            raise Failed(Failure(Fault.WRONG_NUMBERS, f"relative error {error.relative:.2g}{when}", error.relative))
        for name, array in feeds.items():
            if not all(identical(copy, array) for copy in session.copies(name)):
                raise Failed(Failure(Fault.OVERWRITTEN_INPUT, f"{name}{when}", error.relative))

    def _apart(
        self,
        outputs: Sequence[Any],
        expected: Mapping[str, Any],
        exact: bool,
        excused: Mapping[str, Noise] | None = None,
    ) -> Error:
        """The largest errors of any output beyond what is ``excused``, by default by rounding; for labels in a lower
        precision the share that differs, not the distance."""
        noise = self._limits.excused if excused is None else excused
        errors = []
        for output, (name, right) in zip(outputs, expected.items(), strict=True):
            counted, excuse = not exact and holds_labels([right]), noise.get(name)
            found = [distance.error for distance in counted_distances(output, right, counted)]
            if excuse is None or (exact and differing(output, right) > excuse.share):
                errors += found
            else:
                errors += [error for error in found if not excuse.explains(error.relative, counted)]
        largest = (max((getattr(error, name) for error in errors), default=0.0) for name in ("relative", "max_abs"))
        return Error(*largest)

    def over_samples(
        self, session: Session, exact: bool, most: int | None = None, known: Pairs = ()
    ) -> float | None:
        """The error that the budget bounds, over the samples of the search; None where no budget applies.

        A session in float32 that passed its check against the references needs no more, unless there is a metric.
        ``most`` samples, always the first ones, give an estimate. ``known``: the first few, with their outputs.
        """
        pairs = self._outputs(session, exact, most, known)
        if pairs is None:
            return None
        # a part of the samples has a score of its own
        return self.accepted(self._error(pairs, self._reference_score if most is None else None), exact)

    def estimate(self, session: Session, exact: bool) -> Estimate | None:
        """An estimate of that from few samples; None for a metric, which few samples cannot estimate."""
        pairs = None if self._setting.metric else self._outputs(session, exact, FEW)
        if pairs is None:
            return None
        error = least = self._error(pairs)
        if self._setting.over == "all" and len(pairs) > 1:
            least = min(self._error([*pairs[:left_out], *pairs[left_out + 1 :]]) for left_out in range(len(pairs)))
        return Estimate(error, self.accepted(least, exact), pairs)

    def promising(self, estimate: Estimate) -> bool:
        """Whether all samples may keep the budget, given ``estimate`` from few; False if these were all samples."""
        return len(self.samples) > FEW and estimate.least <= LARGE_ERROR.number * self._limits.budget

    def _outputs(self, session: Session, exact: bool, most: int | None, known: Pairs = ()) -> Pairs | None:
        """Outputs of ``session`` for the first ``most`` samples; None where no budget applies."""
        if not self._limits.front or (exact and not self._setting.metric):
            return None
        try:
            clock = self._wall if self._setting.target.accelerated else ActiveClock(self._wall, self._processor)
            more = _run(session, self.samples[len(known) : most], SLOW_JUDGING.number, clock)
        except TimeoutError as late:
            raise Failed(Failure(Fault.FAR_BEHIND, str(late), rule=SLOW_JUDGING.name)) from late
        return [*known, *more]

    def _error(self, pairs: Pairs, reference: float | None = None) -> float:
        return max(0.0, judge(pairs, self.metric, self._setting.over, reference))

    def accepted(self, error: float, exact: bool) -> float:
        """``error``, which some answer could have.

        Raises:
            Failed: none could.
        """
        if exact or error <= self._limits.measured:
            return error
        detail = f"the metric drops by {error:.3g}" if self._setting.metric else f"relative error {error:.2g}"
        raise Failed(Failure(Fault.WRONG_NUMBERS, detail, error))

    def roughly(self, session: Session, exact: bool) -> float | None:
        """The drop of a metric over a part of the samples; None where all samples are needed.

        They are needed where the drop over the part would fail the session, or there is no metric.
        """
        if not self._setting.metric:
            return None
        try:
            return self.over_samples(session, exact, len(self.samples) // PART)
        except InputError:  # a metric may need many samples, or one of each class
            return None
        except Failed as failed:
            if failed.failure.fault is not Fault.WRONG_NUMBERS:
                raise
            return None

    def closely(self, session: Session, samples: Path) -> Judgement:
        """The error of ``session`` over the samples in a file, with an interval."""
        return judge_closely(_run(session, read_samples(samples)), self.metric, self._setting.over)

    def invariance(self, session: Session, samples: Path) -> Invariance:
        """How far rows of the samples in a file move in a batch and beside padding, if sizes of ``session`` are
        open."""
        shapes = {name: session.program.tensors[name].shape for name in session.program.inputs}
        return measure_invariance(
            lambda feeds, names: plain(session.run(names, feeds)), read_samples(samples), shapes
        )


def _run(
    session: Session,
    samples: tuple[Sample, ...],
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Pairs:
    if not samples:
        raise InputError("the run has no samples for the error: start it again with --overwrite")
    return run_samples(lambda feeds, names: plain(session.run(list(names), feeds)), samples, seconds, clock)


class ActiveClock:
    """A clock that pauses while this process is halted for the timing of others.

    It advances by no more than the processor time that the process used since the last call: judging on the processor
    always uses one core.
    """

    def __init__(
        self, wall: Callable[[], float] = time.monotonic, processor: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._processor = wall, processor
        self._asked, self._seconds = (wall(), processor()), 0.0

    def __call__(self) -> float:
        before, self._asked = self._asked, (self._wall(), self._processor())
        self._seconds += min(now - then for now, then in zip(self._asked, before, strict=True))
        return self._seconds


def all_exact(placement: Placement) -> bool:
    """Whether every region of ``placement`` computes in float32 throughout."""
    return all(map(exact_arithmetic, placement.regions))
