"""Failures of measurements: a kind that programs compare, a message that people read, and a library's own."""

from __future__ import annotations

from dataclasses import dataclass
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
    def passing(self) -> bool:
        """Whether it may be temporary for this machine, so that other runs should try again."""
        return self in (Fault.HANG, Fault.MEMORY, Fault.WORKERS_DIED, Fault.SYSTEM, Fault.CLOSED)


@dataclass(frozen=True)
class Failure:
    """Why there is no time.

    Attributes:
        message: for the user; empty if ``fault`` says all that is known.
        relative_error: of the outputs (2-norm), where they were compared.
        detail: a library's or the system's own message, for its programmers.
        rule: name of the pruning rule that decided (``pruning.py``); empty where none did.
    """

    fault: Fault
    message: str = ""
    relative_error: float | None = None
    detail: str = ""
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.fault}: {'; '.join(filter(None, (self.message, self.detail)))}"

    @property
    def raw_text(self) -> str:
        """All that is known, for programmers; empty if users read all of it."""
        return str(self) if self.detail else ""


class Failed(Exception):
    """What is to be measured fails for the reason ``failure``."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure
