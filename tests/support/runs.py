"""Runs of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collage_evo.config import Config, parse_config
from collage_evo.costs.database import CostDatabase
from collage_evo.report.progress import LineReporter, Reporter
from collage_evo.report.result import Result
from collage_evo.run.context import RunContext
from collage_evo.run.evaluate import result_of
from collage_evo.run.plan import PLAN
from collage_evo.run.records import Plan
from tests.support.machine import FakeMachine
from tests.support.quick import nested


def run_in(directory: Path, config: Config, reporter: Reporter | None = None, plan: Plan = PLAN) -> Result:
    """The result of the run in ``directory``, begun or continued."""
    return result_of(config, directory, reporter or LineReporter(), plan)


def fake_run(directory: Path, machine: FakeMachine, lines: list[str] | None = None, **given: Any) -> RunContext:
    """A run on ``machine``, of a model that is not there; ``lines`` are what it logs, without times.

    ``given``: keys of its configuration.
    """
    config = parse_config(nested({"model.source": "m.onnx", **given}), (), "test")
    logged = lines if lines is not None else list[str]()
    reporter = LineReporter(lambda line: logged.append(line.partition("] ")[2]))
    return RunContext(config, directory, reporter, machine, directory, CostDatabase(directory / "costs.jsonl"))
