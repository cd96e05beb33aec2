"""How wrong a session's outputs may be and are: takes sessions and the setting, gives errors or what is wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.judge import Judgement, judge, judge_closely, run_samples
from collage_evo.accuracy.losses import Pairs
from collage_evo.accuracy.metric import Metric
from collage_evo.accuracy.samples import Sample, read_samples
from collage_evo.backends.select import exact_arithmetic
from collage_evo.errors import InputError
from collage_evo.graph.nonfinite import lost
from collage_evo.graph.reference import Error, counted_distances, holds_labels
from collage_evo.graph.values import identical, plain
from collage_evo.measure.jobs import Setting
from collage_evo.measure.references import Reference, read_references
from collage_evo.patterns.match import Placement
from collage_evo.placement.failure import Failure, Fault
from collage_evo.runtime.manifest import read_infos
from collage_evo.runtime.session import Session
from collage_evo.target.target import CPU

BROKEN = 1.0
"""A relative error from which on a result has nothing to do with its reference, in whatever precision."""
LATE_ERROR = 2.0
"""After many runs a result in a lower precision may be so many times as far off as after the first."""
NEAR = 1.5
"""What few samples give as an error may be so many times too large, without the one that is off most."""
PART = 4
"""Of what is behind, one sample in so many tells roughly what a metric drops by, which needs more than few."""
JUDGE_SECONDS = 60.0
"""Who takes longer over the samples of the search is far too slow, and says so before it is taken to hang."""
EXACT = "exact"
"""The key of an artifact's information that says whether it computes in float32 throughout."""


@dataclass(frozen=True)
class Estimate:
    """What few samples give as an error: of all of them, and of those without the sample that is off most.

    One sample can have most of an error, as where a classifier's label changes.
    """

    error: float
    least: float


class Judge:
    """Holds outputs against references by the rules of one run. Samples and metric are loaded when first needed."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._limits = setting, setting.limits

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Those of the search."""
        return read_samples(self._setting.files.search)

    @cached_property
    def metric(self) -> Metric:
        return load_metric(self._setting.metric, self._limits.excused)

    @cached_property
    def _reference_score(self) -> float | None:
        """What the model itself reaches on the samples of the search, by the metric."""
        return self.metric.reference(self.samples)

    @cached_property
    def _nonfinite(self) -> list[Reference]:
        return read_references(self._setting.files.nonfinite)

    @cached_property
    def _edges(self) -> list[Reference]:
        return read_references(self._setting.files.edges)

    def bound(self, exact: bool) -> float:
        """The largest relative error of a piece that is not broken."""
        return self._limits.of_pieces if exact else max(self._limits.of_pieces, BROKEN)

    def whole_bound(self, exact: bool) -> float:
        """The same for the model's own outputs, where in a lower precision a metric alone says what is broken.

        It may be the number of things found that differs, and with it the shape of an output.
        """
        if exact:
            return self._limits.tolerance
        return math.inf if self._setting.metric else max(self._limits.tolerance, BROKEN)

    def late_bound(self, exact: bool, first: Error) -> float:
        """The same for a result after many runs whose first one was off by ``first``."""
        return self._limits.tolerance if exact else max(self._limits.tolerance, LATE_ERROR * first.relative)

    def check(self, session: Session, references: Sequence[Reference], exact: bool) -> Error | Failure:
        """The largest errors over ``references``; or what is wrong with the session."""
        worst = Error(0.0, 0.0)
        for feeds, expected in references:
            error = self._apart(plain(session.run(list(expected), feeds)), expected, exact)
            worst = Error(max(worst.relative, error.relative), max(worst.max_abs, error.max_abs))
            if failure := self.fault(session, feeds, error, self.whole_bound(exact)):
                return failure
        return worst

    def wrong_at_edges(self, session: Session, exact: bool) -> Failure | None:
        """What is wrong with float32 results for inputs that random ones hardly reach; lower precisions lose more."""
        for feeds, expected in self._edges if exact else ():
            error = self._apart(plain(session.run(list(expected), feeds)), expected, exact)
            if failure := self.fault(session, feeds, error, self.whole_bound(exact)):
                return replace(failure, message=f"{failure.message}, for ties, large or tiny numbers as inputs")
        return None

    def lost(self, session: Session, references: Sequence[Reference] | None = None) -> Failure | None:
        """What is wrong where NaN and infinity must not get lost: with the whole model, or on ``references``."""
        if not self._setting.keeps_nonfinite:
            return None
        for feeds, expected in self._nonfinite if references is None else references:
            if lost(plain(session.run(list(expected), feeds)), list(expected.values())):
                return Failure(Fault.NOT_FINITE, "NaN or infinity in its inputs gets lost: verify.nonfinite is kept")
        return None

    def check_last(self, session: Session, reference: Reference, exact: bool, first: Error) -> Failure | None:
        """What is wrong with what the last of many runs left, on inputs whose first run was off by ``first``."""
        feeds, expected = reference
        last = self._apart([plain(session.read(name)) for name in expected], expected, exact)
        return self.fault(session, feeds, last, self.late_bound(exact, first))

    def fault(self, session: Session, feeds: Mapping[str, Any], error: Error, bound: float) -> Failure | None:
        """Why the run that gave ``error`` does not count; None if it does."""
        if not math.isfinite(error.relative) and math.isfinite(bound):
            return Failure(Fault.NOT_FINITE, "outputs are not finite, or of another shape", error.relative)
        elif error.relative > bound:
            return Failure(Fault.WRONG_NUMBERS, f"relative error {error.relative:.2g}", error.relative)
        for name, given in feeds.items():
            if not all(identical(held, given) for held in session.copies(name)):
                return Failure(Fault.OVERWRITTEN_INPUT, name, error.relative)
        return None

    def _apart(self, given: Sequence[Any], expected: Mapping[str, Any], exact: bool) -> Error:
        """The largest errors of any output beyond what rounding explains; of labels in a lower precision how many
        differ, not by how much."""
        found = [
            one.error
            for made, (name, right) in zip(given, expected.items(), strict=True)
            for one in counted_distances(made, right, not exact and holds_labels([right]))
            if not self._limits.excuses(name, one.error.relative)
        ]
        return Error(*(max((getattr(one, name) for one in found), default=0.0) for name in ("relative", "max_abs")))

    def over_samples(self, session: Session, exact: bool, most: int | None = None) -> float | Failure | None:
        """What the budget bounds, over all samples of the search; None where nothing is judged by it.

        A session in float32 that passed its check against the references needs no more, unless there is a metric.
        ``most`` samples, always the first ones, give an estimate.
        """
        pairs = self._outputs(session, exact, most)
        if pairs is None or isinstance(pairs, Failure):
            return pairs
        error = self._error(pairs, self._reference_score if most is None else None)  # a part has its own
        return self._refused(error, exact) or error

    def estimate(self, session: Session, exact: bool) -> Estimate | Failure | None:
        """What few samples give for that; None of a metric, of which they tell nothing."""
        few = self._setting.policy.first_samples
        pairs = None if self._setting.metric else self._outputs(session, exact, few)
        if pairs is None or isinstance(pairs, Failure):
            return pairs
        error = least = self._error(pairs)
        if self._setting.over == "all" and len(pairs) > 1:
            least = min(self._error([*pairs[:left_out], *pairs[left_out + 1 :]]) for left_out in range(len(pairs)))
        return self._refused(least, exact) or Estimate(error, least)

    def promising(self, estimate: Estimate) -> bool:
        """Whether all samples may show that what few gave as ``estimate`` keeps the budget; not if all were seen."""
        return len(self.samples) > self._setting.policy.first_samples and estimate.least <= NEAR * self._limits.budget

    def settled(self, estimate: Estimate, exact: bool) -> float | Failure:
        """What counts where no more samples than those of ``estimate`` are looked at."""
        return self._refused(estimate.error, exact) or estimate.error

    def _outputs(self, session: Session, exact: bool, most: int | None) -> Pairs | Failure | None:
        """What ``session`` gives for the first ``most`` samples; None where nothing is judged by them."""
        if not self._limits.front or (exact and not self._setting.metric):
            return None
        try:
            clock = ActiveClock() if self._setting.target.device == CPU else time.monotonic
            return _run(session, self.samples[:most], JUDGE_SECONDS, clock)
        except TimeoutError as late:
            return Failure(Fault.FAR_BEHIND, str(late))

    def _error(self, pairs: Pairs, reference: float | None = None) -> float:
        return max(0.0, judge(pairs, self.metric, self._setting.over, reference))

    def _refused(self, error: float, exact: bool) -> Failure | None:
        """What is wrong with an error that no answer could have."""
        if exact or error <= self._limits.measured:
            return None
        detail = f"the metric drops by {error:.3g}" if self._setting.metric else f"relative error {error:.2g}"
        return Failure(Fault.WRONG_NUMBERS, detail, error)

    def roughly(self, session: Session, exact: bool) -> float | Failure | None:
        """By how much a metric drops over a part of the samples; None where all have to tell.

        They have to where the part would have the session refused for its drop, or the metric takes no part.
        """
        if not self._setting.metric:
            return None
        try:
            dropped = self.over_samples(session, exact, len(self.samples) // PART)
        except InputError:  # it may need many, or one of each class
            return None
        return None if isinstance(dropped, Failure) and dropped.fault is Fault.WRONG_NUMBERS else dropped

    def closely(self, session: Session, samples: Path) -> Judgement:
        """How wrong ``session`` is over the samples in a file, with an interval."""
        return judge_closely(_run(session, read_samples(samples)), self.metric, self._setting.over)


def _run(
    session: Session,
    samples: tuple[Sample, ...],
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Pairs:
    if not samples:
        raise InputError("no samples to judge by: start the run again with --overwrite")
    return run_samples(lambda feeds, names: plain(session.run(list(names), feeds)), samples, seconds, clock)


class ActiveClock:
    """A clock that stands still while this process is halted, so that others can time.

    It goes on by no more than the process used of the cores since it was asked last: who judges on the processor
    always uses one.
    """

    def __init__(self) -> None:
        self._asked, self._seconds = (time.monotonic(), time.process_time()), 0.0

    def __call__(self) -> float:
        before, self._asked = self._asked, (time.monotonic(), time.process_time())
        self._seconds += min(now - then for now, then in zip(self._asked, before, strict=True))
        return self._seconds


def all_exact(placement: Placement) -> bool:
    """Whether every region of ``placement`` computes in float32 throughout."""
    return all(map(exact_arithmetic, placement.regions))


def computes_exactly(artifact: Path) -> bool:
    """Whether an artifact computes in float32 throughout, as it says of itself; one that does not say does."""
    return all(info.get(EXACT, True) for info in read_infos(artifact))
