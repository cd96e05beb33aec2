"""Failures of libraries as sentences for users; the raw messages go elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from collage_evo.placement.failure import Failure, Fault
from collage_evo.report.words import title

_RAW = re.compile(
    r"Check failed|Exception|Error\b|Traceback|ended with -?\d|exit code|::|#{3,}|0x[0-9a-f]{4,}|killed by"
    r"|\.(?:cc|cpp|cxx|hpp|h|cu|py)\b|\bptr\b|nullptr|\(\)|[{}\[\]<>|=]{2,}"
)
"""Patterns of messages that a compiler or converter writes for its own programmers."""
_MOST = 160
_WHAT = {
    Fault.BUILD: "cannot compile it",
    Fault.CRASH: "crashed over it",
    Fault.HANG: "did not come to an end with it",
    Fault.MEMORY: "needs more memory for it than there is (fitness.memory_gb)",
    Fault.WRONG_NUMBERS: "computes wrong numbers with it",
    Fault.NOT_FINITE: "gives infinite numbers or none",
    Fault.OVERWRITTEN_INPUT: "overwrites its inputs",
    Fault.RAISED: "stopped with an error",
    Fault.REFUSED: "cannot run it here",
    Fault.FAR_BEHIND: "is far slower than the best",
    Fault.WORKERS_DIED: "was not timed, as the processes that measure had ended",
    Fault.SYSTEM: "was not timed, as the operating system refused what it needs",
    Fault.CLOSED: "was not timed, as the run was over",
    Fault.NO_TIME: "was not tried",
    Fault.NEEDLESS: "was not tried",
    Fault.KNOWN: "was not tried",
}


def describe_failure(failure: Failure, backend: str = "") -> str:
    """Why there is no time for a whole model in ``backend``, without messages that only its programmers
    understand."""
    what = _WHAT[failure.fault]
    own = _own_words(failure, backend)
    if own and failure.fault is Fault.FAR_BEHIND:
        return own
    said = f"{title(backend)} {what}" if backend else what
    return f"{said}: {own}" if own else said


def raw_words(failure: Failure | None, backend: str = "") -> str:
    """The message that :func:`describe_failure` omits; empty if it omits none."""
    return str(failure) if failure is not None and not _own_words(failure, backend) else ""


def _own_words(failure: Failure, backend: str) -> str:
    """The message if it is meant for users, without the library's name in front; else empty."""
    message = " ".join(failure.message.split()).removeprefix(f"{backend}: ")
    if not message or len(message) > _MOST or _RAW.search(message):
        return ""
    return message


def describe_unfit(failures: Iterable[Failure]) -> dict[str, int]:
    """Number of mixtures without a valid time, for each kind of reason, the commonest first."""
    kinds = Counter(_KINDS.get(failure.fault, _WHAT[failure.fault]) for failure in failures)
    return dict(kinds.most_common())


_KINDS = {
    Fault.BUILD: "a library cannot compile a part of it",
    Fault.CRASH: "a library crashed",
    Fault.HANG: "it did not come to an end",
    Fault.MEMORY: "it needs more memory than there is",
    Fault.WRONG_NUMBERS: "its error is larger than any that could be the answer",
    Fault.NOT_FINITE: "it gives infinite numbers or none",
    Fault.OVERWRITTEN_INPUT: "a library overwrites its inputs",
    Fault.RAISED: "a library stopped with an error",
    Fault.REFUSED: "it cannot run here",
    Fault.FAR_BEHIND: "it is far slower than the best, so it was not timed to the end",
}
