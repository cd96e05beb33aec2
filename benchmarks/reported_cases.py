"""Small models of public bug reports, each given to a whole run of the program: is its answer right?

    python benchmarks/reported_cases.py [--seconds 2] [--only NAME ...] [--jobs 2] [--out reported_cases.json]

A run has its defaults but for short limits of time, ``--seconds`` a stage; reports of NaN and infinity have
``verify.nonfinite=kept``. The loaded answer is compared with ONNX Runtime without optimisations on the inputs of the
report, on the same numbers in another order, and on new random ones. An error is wrong if it is above the run's
tolerance (of an answer in a lower precision: its budget) and twice what one rounding changes. A run or a session that
raises where ONNX Runtime answers is refused. Goes on where ``--out`` stops. Ends with 1 if a case is not right.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import repository  # noqa: F401 - makes tests importable
from rows import Rows

from collage_evo import Result, optimize
from collage_evo.errors import CollageError, InputError, one_line
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.noise import Noise
from collage_evo.graph.reference.reference import Reference
from collage_evo.graph.reference.rounding import Moved
from tests.support.recent_reports import NONFINITE, RECENT
from tests.support.reports import REPORTS, Report

CASES = {**REPORTS, **RECENT, **NONFINITE}
Arrays = dict[str, np.ndarray]
FRESH = 3
"""Random inputs, of seeds that no run draws."""
SEED = 7000
KINDS = ("right", "wrong", "refused", "without truth")
LIMIT_S = 1200.0
"""A run that takes longer hangs."""
ENDS_S = 60.0


@dataclass(frozen=True)
class Row:
    """What became of one case; ``share`` is the largest error over what it may be, ``on`` the inputs that show it."""

    case: str
    status: str
    answer: str = ""
    exact: bool = True
    error: float = 0.0
    share: float = 0.0
    on: str = ""
    seconds: float = 0.0
    reason: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        return (self.case,)


def settings(seconds: float, nonfinite: bool) -> dict[str, Any]:
    """The keys of a short run."""
    limits = {key: seconds for key in ("accuracy.seconds", "costs.seconds", "search.seconds", "final.seconds")}
    short = {"fitness.timing.min_seconds": 0.05, "final.speeds": "searched", "accuracy.held_out": 32}
    return {"backends.seconds": 4 * seconds, **limits, **short, **({"verify.nonfinite": "kept"} if nonfinite else {})}


def inputs(report: Report, model: onnx.ModelProto) -> Iterator[tuple[str, Arrays]]:
    """Those of the report, the same in another order, and new ones."""
    feeds = {name: np.asarray(value) for name, value in report.feeds.items()}
    yield "the report's", feeds
    rng = np.random.default_rng(SEED)
    yield "in another order", {name: rng.permuted(value, axis=None) for name, value in feeds.items()}
    for seed in range(FRESH):
        yield f"random {seed}", random_inputs(model, seed=SEED + seed)


def judge(report: Report, result: Result, seconds: float) -> Row:
    """The answer of a run beside ONNX Runtime without optimisations."""
    model, answered = report.model(), result.report
    exact = next(point.exact for point in answered.front if point.answer)
    least = 1e-3 if exact else float(answered.accuracy.largest or 0)
    answer = " + ".join(sorted({one.engine for one in answered.placement}))
    row = partial(Row, report.name, answer=answer, exact=exact, seconds=seconds)
    truth, names = Reference(model), [value.name for value in model.graph.output]
    worst = row("right")
    for on, feeds in inputs(report, model):
        try:
            wanted = dict(zip(names, plain(truth.run(feeds)), strict=True))
        except InputError:  # not in this order
            continue
        try:
            made = plain(result.session.run(names, feeds))
        except Exception as raised:
            return row("refused", on=on, reason=one_line(raised))
        try:
            moved = Moved(model, 1, None).noise(feeds, wanted)
        except InputError:
            moved = dict.fromkeys(names, Noise())
        for got, (name, right) in zip(made, wanted.items(), strict=True):
            error = relative_error(got, right).relative
            share = error / max(least, 2 * moved[name].error)
            if share > worst.share:
                worst = row("wrong" if share > 1.0 else "right", error=error, share=share, on=on)
    return worst


def run(name: str, seconds: float, folder: Path, answers: Connection) -> None:
    """Make the run of a case and judge its answer."""
    report = CASES[name]
    os.environ["COLLAGE_EVO_TMPDIR"] = str(folder)  # runs need not wait for each other: no time counts here
    chosen = settings(seconds, name in NONFINITE) | {"cache.dir": str(folder.parent / "cache")}
    try:
        Reference(report.model()).run(report.feeds)
    except InputError as error:
        answers.send(Row(name, "without truth", reason=str(error)))
        return
    begun = time.monotonic()
    try:
        result = optimize(report.model(), out=folder / "run", config=chosen, progress=lambda *_: None)
    except CollageError as error:
        answers.send(Row(name, "refused", reason=str(error)))
        return
    answers.send(judge(report, result, time.monotonic() - begun))


def in_a_process(name: str, seconds: float, folder: Path) -> Row:
    """:func:`run` in a process that may die."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    folder.mkdir()
    process = context.Process(target=run, args=(name, seconds, folder, theirs))
    process.start()
    theirs.close()
    row = Row(name, "refused", reason=f"no answer within {LIMIT_S:.0f} s")
    try:
        if ours.poll(LIMIT_S):
            row = ours.recv()
    except EOFError:
        row = Row(name, "wrong", reason="the process died")
    process.join(ENDS_S)
    process.kill()
    process.join()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="limit of each stage")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help="these cases")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("reported_cases.json"), help="a row for each case")
    args = parser.parse_args()
    rows = Rows(args.out, Row)
    with tempfile.TemporaryDirectory(prefix="reported-cases-") as folder, ThreadPoolExecutor(args.jobs) as pool:

        def measured(name: str) -> Row:
            row = rows.get((name,), Path(folder), partial(in_a_process, name, args.seconds))
            assert row is not None  # what a run refuses is a row
            print(f"{row.status:8} {row.case}: {row.answer}, error {row.error:.2g} {row.on} {row.reason}", flush=True)
            return row

        judged = list(pool.map(measured, args.only))
    for count, key in sorted(((n, key) for key, n in Counter(row.answer for row in judged).items()), reverse=True):
        print(f"{count:4} {key or 'no answer'}")
    totals = Counter(row.status for row in judged)
    print(f"{len(judged)} cases: {', '.join(f'{totals[one]} {one}' for one in KINDS)}")
    return 0 if totals["right"] == len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
