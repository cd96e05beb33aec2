"""A conformance report as a table, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from collage_evo.codec import to_plain
from collage_evo.report.console import new_table
from collage_evo.testing.finding import CHECKS, Finding, Report, Status

_STATUSES: tuple[Status, ...] = ("passed", "declined", "failed")
_REASONS = 12
"""Number of reasons for declining, and of places where NaN or infinity gets lost, that are printed, most frequent
first."""


def print_conformance(report: Report, console: Console) -> None:
    """A row for each check, then the number of pieces of each pattern, reasons for declining, and each failure."""
    table = new_table(f"{report.backend} {report.version}", "-check", "run", *_STATUSES, "what...")
    for check, what in CHECKS.items():
        counts = [report.count(check, status) for status in _STATUSES]
        table.add_row(check, str(sum(counts)), *map(str, counts), what)
    console.print(table)
    met = ", ".join(f"{pattern} {count}" for pattern, count in report.patterns.items())
    console.print(f"pieces run by pattern: {met}")
    declined = [finding for finding in report.findings if finding.status == "declined"]
    _print_reasons("declined", [finding for finding in declined if finding.check != "nonfinite"], console)
    _print_reasons("lost", [finding for finding in declined if finding.check == "nonfinite"], console)
    for finding in report.failures:
        console.print(f"FAILED {finding.check}: {finding.case}: {finding.reason}")


def _print_reasons(heading: str, findings: Sequence[Finding], console: Console) -> None:
    reasons = Counter(finding.reason for finding in findings)
    for reason, count in reasons.most_common(_REASONS):
        console.print(f"{heading} {count}: {reason}")
    if len(reasons) > _REASONS:
        console.print(f"and {len(reasons) - _REASONS} more: see --json")


def conformance_json(report: Report) -> dict[str, Any]:
    """The counts of each check, and every finding."""
    counts = {check: {status: report.count(check, status) for status in _STATUSES} for check in CHECKS}
    return {"checks": counts, **to_plain(report)}
