"""Results of runs, as they lie in ``tests/report/approved``."""

from __future__ import annotations

from pathlib import Path

from collage_evo.report.finished import read_finished
from collage_evo.report.result import Result

APPROVED = Path(__file__).parents[1] / "report" / "approved"


def result(name: str = "placement_won") -> Result:
    """The one called ``name``; of several profiles the first."""
    return read_finished(APPROVED / name)[0].result
