"""Failures of measurements: a kind that programs compare, and a message that people read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Fault(StrEnum):
    """Kind of failure; the value is its name in reports."""

    BUILD = "build"
    """The backend reports that it cannot compile it."""
    DECLINED = "declined"
    """This package does not let the backend compute it."""
    CRASH = "crash"
    HANG = "hung"
    MEMORY = "memory"
    WRONG_NUMBERS = "wrong numbers"
    NOT_FINITE = "not finite"
    """Wrong numbers, also none, infinite ones, or a wrong count."""
    OVERWRITTEN_INPUT = "overwritten input"
    RAISED = "raised"
    """A library raised an exception."""
    REFUSED = "refused"
    """This package cannot do it here."""
    FAR_BEHIND = "far behind"
    """Too slow: its timing was aborted, or omitted."""
    NO_TIME = "no time"
    """The time limit passed before it was tried."""
    NEEDLESS = "needless"
    """Another variant runs this model in the same way, or is faster than this one can be."""
    KNOWN = "known"
    """An earlier run has evidence enough."""
    WORKERS_DIED = "worker died"
    SYSTEM = "system"
    """The operating system refuses what every other job needs too: for example, the disk is full."""
    CLOSED = "closed"
    """No caller waits for it any more."""

    @property
    def about_speed(self) -> bool:
        """Whether slowness is its only fault."""
        return self is Fault.FAR_BEHIND

    @property
    def passing(self) -> bool:
        """Whether it may be temporary for this machine, so that other runs should try again."""
        return self in (Fault.HANG, Fault.MEMORY, Fault.WORKERS_DIED, Fault.SYSTEM, Fault.CLOSED)


@dataclass(frozen=True)
class Failure:
    """Why there is no time; ``relative_error`` of the outputs where they were compared (2-norm)."""

    fault: Fault
    message: str
    relative_error: float | None = None

    def __str__(self) -> str:
        return f"{self.fault}: {self.message}"

    def after(self, runs: int) -> Failure:
        """The same failure, observed only after so many runs."""
        return replace(self, message=f"{self.message} (after {runs} runs)")
