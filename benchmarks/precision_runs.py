"""A table of our own runs in a contest of precisions: error in int8, share of operators in it, seconds.

    python benchmarks/precision_runs.py FOLDER/*/threads_1/ours_*/run

Takes run directories that ``precision.py`` has left, and any others; prints a row for each. The relative error with
all heavy operators in int8 is what the run expected of it: the root of the sum of what it measured for each operator
alone, on as many samples as it had time for. Where a task has a metric, it is something else than its drop.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import repository  # noqa: F401

from collage_evo.graph.ir.operators import HEAVY
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.report.finished import result_in
from collage_evo.report.result import Operator, Result
from collage_evo.report.stage import Stage
from collage_evo.run.objectives import SHARES
from collage_evo.run.store import Store

CALIBRATING, REDUCING = Stage.CALIBRATE, Stage.SENSITIVITIES
HEADS = (
    "task", "budget", "error, all in int8: expected", "heavy operators in int8", "all in int8", "all in bfloat16",
    "error of the answer", "s: calibrating", "what operators lose", "whole run",
)  # fmt: skip


def row(run: Path, result: Result) -> Sequence[str]:
    """Cells by :data:`HEADS`; empty where the run says nothing of it."""
    accuracy = result.accuracy
    operators = [one for region in result.placement for one in region.operators]
    seconds = result.wall_seconds
    return (
        _task(run),
        str(accuracy.budget) if accuracy else "",
        _expected(run),
        _share([one for one in operators if one.kind in HEAVY], "int8"),
        _share(operators, "int8"),
        _share(operators, "bfloat16"),
        f"{accuracy.error_held_out:.2g}" if accuracy and accuracy.error_held_out is not None else "",
        *(f"{seconds[stage]:.1f}" if stage in seconds else "" for stage in (CALIBRATING, REDUCING)),
        f"{_whole(seconds):.0f}",
    )


def _task(run: Path) -> str:
    """The task's name where the run lies as ``precision.py`` leaves it, the run's own name otherwise."""
    return run.parents[2].name if run.parents[1].name.startswith("threads_") else run.name


def _expected(run: Path) -> str:
    shares = (Store(run).get(SHARES) or {}).get(Arithmetic.INT8, ())
    return f"{math.sqrt(math.fsum(shares)):.2%}" if shares else ""


def _share(operators: Sequence[Operator], arithmetic: str) -> str:
    return f"{sum(one.arithmetic == arithmetic for one in operators)} of {len(operators)}" if operators else ""


def _whole(seconds: Mapping[str, float]) -> float:
    """Of all stages: ``first answer at`` is a moment, not a stage."""
    return sum(spent for stage, spent in seconds.items() if stage != "first answer at")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    for path in options.runs:
        run = path.resolve()
        result = result_in(run)
        if result is None:
            print(f"{run}: has no result yet, or one that cannot be read")
        else:
            print(f"| {' | '.join(row(run, result))} |")


if __name__ == "__main__":
    main()
