"""What placements are judged by (Objective), what measuring one gives (Outcome), and who gives it (Evaluator)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from collage_evo.errors import InputError
from collage_evo.patterns.match import Placement
from collage_evo.placement.failure import Failure


class Objective(StrEnum):
    """What a placement is judged by: latency in ms, relative error of its outputs. Of each, less is better.

    Throughput is no third one but another way to measure the first: with ``search.objective: throughput`` the
    milliseconds are those that the full machine takes for a run. A search has one kind of them, and its checkpoint
    says which.
    """

    LATENCY = "latency"
    ERROR = "error"

    def amount(self, value: float) -> float:
        """What of ``value`` adds up over the parts of a placement; less than nothing counts as none."""
        return float(max(0.0, value) ** _POWER[self])

    def of_amount(self, amount: float) -> float:
        """The value that :meth:`amount` gave this of."""
        return float(amount ** (1 / _POWER[self]))


_POWER = {Objective.LATENCY: 1, Objective.ERROR: 2}
"""To which power values add up: of errors that do not depend on each other the squares do."""

Bounds = Mapping[Objective, float]
"""Objectives besides latency, and the largest value of each that is wanted."""

Terms = Mapping[Objective, tuple[float, ...]]
"""What each match is predicted to add to objectives besides latency, as :meth:`Objective.amount` counts."""


@dataclass(frozen=True)
class Outcome:
    """Latency of a placement over ``n`` timed runs, in ms; or no latency and why it is unfit.

    Where several sessions were timed at once it is the machine's time for a run, over ``n`` parts of the time.

    ``error`` is the relative numerics error (2-norm) against the reference, None where it was not checked.
    ``worker`` names who measured it. ``disturbed``: others were at work on the same cores, so that the latency says
    less than an undisturbed one. ``rough``: the error is the drop of a metric over a part of the samples, which
    counts few decisions.
    """

    latency_ms: float | None
    p10_ms: float | None = None
    p90_ms: float | None = None
    n: int = 0
    failure: Failure | None = None
    error: float | None = None
    worker: str = ""
    contended: bool = False
    rough: bool = False

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
        measured = {Objective.LATENCY: self.latency_ms, Objective.ERROR: self.error}
        values = tuple(value for value in map(measured.__getitem__, chosen) if value is not None)
        if len(values) < len(chosen):
            unknown = [objective for objective in chosen if measured[objective] is None]
            raise InputError(f"no {' and no '.join(unknown)} was measured: leave it out of the objectives")
        return values

    @classmethod
    def unfit(cls, failure: Failure, worker: str = "") -> Outcome:
        """A placement that failed to build, crashed, hung or gave wrong numbers."""
        return cls(latency_ms=None, failure=failure, error=failure.relative_error, worker=worker)


class Evaluator(Protocol):
    """Measures placements on a target.

    ``evaluate`` takes placements as they are made and returns one outcome for each that it took, in order: None for
    those that would have begun after ``until``, on the clock of the search, but not for all. It may build and measure
    several at once inside, in any order; failures are outcomes, never exceptions.
    """

    def evaluate(self, placements: Iterable[Placement], until: float) -> Sequence[Outcome | None]:
        """Outcomes of ``placements``, in order."""
        ...
