"""Findings of the conformance suite: one value for each check of each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

CHECKS: Mapping[str, str] = {
    "contract": "name, probe, variants, patterns; every refusal has a reason of one line",
    "patterns": "every declared pattern takes part of some case",
    "reference": "there are right numbers to compare with: the reference runs the case",
    "build": "what is supported builds, and leaves exactly the files it declares",
    "numerics": "outputs are right, against ONNX Runtime without optimisations",
    "buffers": "outputs land in the caller's memory wherever that lies, and nothing is written beside it",
    "inputs": "inputs are not changed, and may be write-protected",
    "fresh": "new contents of the inputs are seen",
    "repeat": "the same inputs give the same outputs again",
    "instances": "two instances in one process do not disturb each other",
    "rebound": "what is loaded may be bound again, to other buffers",
    "together": "two instances called by two threads at the same time give the right numbers",
    "capture": "what a device enqueues for a piece is captured if it says that it can be, and replayed on new inputs",
    "nonfinite": "NaN and infinity in the inputs are not lost; advice, as few models ever meet them",
    "indices": "an index that leads out of a tensor raises, or gives what ONNX Runtime gives",
    "open": "a piece with open inputs, built once, is right in every shape, and raises over one that it cannot take",
    "reload": "the declared files alone, moved elsewhere, run in another process",
    "errors": "a model that cannot be built gives a BuildFailure with a reason of one line",
    "threads": "no more threads work than the target allows",
}
"""Checks by name, with their descriptions."""

Status = Literal["passed", "declined", "failed"]


def raised(error: Exception) -> str:
    """One line about an exception of foreign code."""
    return " ".join(f"raised {type(error).__name__}: {error}".split())[:300]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check on one case; ``reason`` is why it was declined or failed."""

    check: str
    case: str
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """All findings about one backend."""

    backend: str
    version: str
    findings: tuple[Finding, ...]
    patterns: Mapping[str, int]
    """Declared pattern to the number of pieces that were run for it."""

    @property
    def failures(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "failed")

    def count(self, check: str, status: Status) -> int:
        """Number of cases of ``check`` that ended so."""
        return sum(finding.check == check and finding.status == status for finding in self.findings)
