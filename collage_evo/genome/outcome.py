"""Objective, Outcome and Evaluator: the criteria, the results and the measurement of placements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from collage_evo.errors import InputError
from collage_evo.genome.failure import Failure
from collage_evo.patterns.match import Placement


class Objective(StrEnum):
    """A criterion of placements: latency in ms, relative error of outputs. Less is better.

    Throughput is no third one but another way to measure the first: with ``search.objective: throughput`` the
    milliseconds are those that the full machine takes for a run. A search has one kind of them, and its checkpoint
    records which.
    """

    LATENCY = "latency"
    ERROR = "error"

    def amount(self, value: float) -> float:
        """The part of ``value`` that adds up over the parts of a placement; negative values count as zero."""
        return float(max(0.0, value) ** _POWER[self])

    def of_amount(self, amount: float) -> float:
        """The value for which :meth:`amount` returns this."""
        return float(amount ** (1 / _POWER[self]))


_POWER = {Objective.LATENCY: 1, Objective.ERROR: 2}
"""The power to which values add up: squares of independent errors do."""

Bounds = Mapping[Objective, float]
"""Objectives in addition to latency, and the largest accepted value of each."""

Terms = Mapping[Objective, tuple[float, ...]]
"""Predicted contribution of each match to objectives in addition to latency, in units of :meth:`Objective.amount`."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a measurement shows besides times and errors.

    ``contended``: other programs used the same cores in every repeat: times are less reliable. ``rough``:
    the error is the drop of a metric over a part of the samples, which counts few decisions.
    """

    contended: bool = False
    rough: bool = False


@dataclass(frozen=True)
class Outcome(Observed):
    """Latency of a placement over ``n`` timed runs, in ms; or no latency and why it is unfit.

    If several sessions were timed at once it is the machine's time for a run, over ``n`` parts of the time.

    ``error`` is the relative numerics error (2-norm) against the reference, None where it was not checked. ``worker``
    names the worker that measured it. The field of an objective other than latency has its name.
    """

    latency_ms: float | None
    p10_ms: float | None = None
    p90_ms: float | None = None
    n: int = 0
    failure: Failure | None = None
    error: float | None = None
    worker: str = ""

    @property
    def ok(self) -> bool:
        """Whether the placement runs and is correct, so that its latency counts."""
        return self.latency_ms is not None and self.failure is None

    @property
    def reason(self) -> str:
        """The failure in words; empty where there is none."""
        return "" if self.failure is None else str(self.failure)

    def objectives(self, chosen: Sequence[Objective]) -> tuple[float, ...]:
        """The value of each chosen objective, in order.

        Raises:
            InputError: one was not measured.
        """
        measured = {Objective.LATENCY: self.latency_ms, **self.others}
        values = tuple(value for value in map(measured.__getitem__, chosen) if value is not None)
        if len(values) < len(chosen):
            unknown = [objective for objective in chosen if measured[objective] is None]
            raise InputError(f"no {' and no '.join(unknown)} was measured: leave it out of the objectives")
        return values

    @property
    def others(self) -> Mapping[Objective, float | None]:
        """The value of each objective other than latency; None where it was not measured."""
        return {objective: getattr(self, objective) for objective in Objective if objective is not Objective.LATENCY}

    def keeps(self, bounds: Bounds) -> bool:
        """Whether each value is within its bound, as measured; an infinite bound admits what was not measured."""
        values = ((self.others[objective], bound) for objective, bound in bounds.items())
        return all(math.isinf(bound) or (value is not None and value <= bound) for value, bound in values)

    @classmethod
    def unfit(cls, failure: Failure, worker: str = "") -> Outcome:
        """A placement that failed to build, crashed, hung or gave wrong numbers."""
        return cls(latency_ms=None, failure=failure, error=failure.relative_error, worker=worker)


class Evaluator(Protocol):
    """Measures placements on a target.

    ``evaluate`` pulls placements as they are made and returns one outcome for each of them, in order: None for those
    that would have begun after ``until``, on the clock of the search, but not for all. It may build and measure
    several at once inside, in any order; failures are outcomes, never exceptions.
    """

    def evaluate(self, placements: Iterable[Placement], until: float) -> Sequence[Outcome | None]:
        """Outcomes of ``placements``, in order."""
