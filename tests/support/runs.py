"""Runs of tests."""

from __future__ import annotations

from pathlib import Path

from collage_evo.config import Config
from collage_evo.report.progress import LineReporter, Reporter
from collage_evo.report.result import Result
from collage_evo.run.evaluate import finish, open_records
from collage_evo.run.plan import PLAN
from collage_evo.run.records import Plan


def run_in(directory: Path, config: Config, reporter: Reporter | None = None, plan: Plan = PLAN) -> Result:
    """The result of the run in ``directory``, begun or continued."""
    with open_records(config, directory, reporter or LineReporter(), plan=plan) as records:
        return finish(records)
