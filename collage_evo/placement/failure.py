"""Why something gave no time that counts: a kind that programs compare, and a message that people read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Fault(StrEnum):
    """What went wrong; the value is its name in reports."""

    BUILD = "build"
    """The backend cannot compile it, and says so."""
    CRASH = "crash"
    HANG = "hung"
    MEMORY = "memory"
    WRONG_NUMBERS = "wrong numbers"
    NOT_FINITE = "not finite"
    """Wrong numbers too: none at all, infinite ones, or not as many as there should be."""
    OVERWRITTEN_INPUT = "overwritten input"
    RAISED = "raised"
    """A library raised an exception."""
    REFUSED = "refused"
    """It cannot be done here, for a reason of this package's own."""
    FAR_BEHIND = "far behind"
    """So slow that it was timed to no end, or not at all."""
    NO_TIME = "no time"
    """The time for it was over before it was tried."""
    KNOWN = "known"
    """An earlier run told enough of it."""
    WORKERS_DIED = "worker died"
    SYSTEM = "system"
    """The operating system refuses what every other job needs too: the disk is full, say."""
    CLOSED = "closed"
    """Nobody waits for it any more."""

    @property
    def about_speed(self) -> bool:
        """Whether nothing is wrong with it but that it is slow."""
        return self is Fault.FAR_BEHIND

    @property
    def passing(self) -> bool:
        """Whether it may be the machine's fault of the moment, so that other runs should try again."""
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
        """The same, seen only after so many runs."""
        return replace(self, message=f"{self.message} (after {runs} runs)")
