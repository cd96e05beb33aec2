"""What running parts of a model side by side wins over the best library on all threads, and how much it could win.

    python benchmarks/lanes.py lanes.json [--models ...] [--threads 2] [--seconds 20] [--precisions 0.02,exact]
        [--batches 1,2] [--folder runs]

For each model, batch and precision: a run with the default settings but for the seconds of its search; where lanes
are in its answer, the same run without that backend; and each single library on one thread. Then take turns, each in
a process of its own, from a caller's arrays to fresh arrays: the best way of each library on all threads and on one,
unless it was far behind in the run, the answer without lanes, and the answer.

The *bound* is the best library's time on all threads over a share of its time on one: what perfect lanes of one
thread each would win. *Reached* is the part of it that the answer won: (ratio - 1) / (bound - 1). The last line has
the geometric mean of the ratios where the bound allows 1.10.

Rows that are in the file already are kept. With ``--folder`` so are runs, which go on where they stopped.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from networks import model_source
from onnx import numpy_helper
from peers import EXACT, best_alone, share_baselines
from peers_told import ONE_THREAD, OURS
from rich.table import Table
from rows import Rows, folder_name, geometric_mean, markdown, show
from turns import median_ms, ratio, take_turns

from collage_evo.accuracy.limits import Limits
from collage_evo.backends.select import select_backends
from collage_evo.backends.variants import engine_name
from collage_evo.config import Config, parse_config
from collage_evo.graph.load import load_model
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import Result
from collage_evo.run.flow import Flow, evaluate
from collage_evo.run.open import LIMITS
from collage_evo.run.store import Store
from collage_evo.target.slots import usable_cores

MODELS = (
    "builtin:squeezenet", "network:inception_v1", "network:inception_v3", "network:nasnet_a", "network:two_tower",
    "builtin:bert?layers=4", "builtin:mobilenet_v2", "builtin:resnet50", "network:densenet121",
)  # fmt: skip
LANES = "lanes"
PLAIN = "without lanes"
ALLOWS = 1.10
"""The geometric mean is over models whose bound is at least this."""


@dataclass(frozen=True)
class Row:
    """One model in one batch and precision, times in milliseconds."""

    model: str
    batch: int
    threads: int
    budget: float | str
    environment: Mapping[str, object]
    answer: str
    plain_answer: str
    error: float | None
    """Relative 2-norm error of the answer's outputs, on the samples of the search."""
    libraries: Mapping[str, str]
    """The way of each library that took turns, by side."""
    regions: int
    """Of the answer; those of ``lanes`` are in ``in_lanes``: their engines, how many nodes each has."""
    in_lanes: Sequence[tuple[str, int]]
    nodes: int
    times_ms: Mapping[str, Sequence[Sequence[float]]]
    """Of all runs, by side and turn."""
    speedups: Mapping[str, tuple[float, float, float]]
    """Of the answer, and if it has lanes of the one without, over the best library: how much, its 95 % interval."""
    seconds: Mapping[str, float]
    """What the run of the answer took, by stage."""

    @property
    def key(self) -> tuple[object, ...]:
        return self.model, self.batch, self.threads, self.budget

    @property
    def bound(self) -> float:
        """How many times as fast perfect lanes of one thread each would be."""
        return self.median_ms(self.best(one_thread=False)) * self.threads / self.median_ms(self.best(one_thread=True))

    @property
    def reached(self) -> float:
        """The part of what the bound allows that was won; not a number where it allows nothing."""
        allowed = self.bound - 1
        return (self.speedups[OURS][0] - 1) / allowed if allowed > 0 else math.nan

    @property
    def plain(self) -> float:
        """Of the answer without lanes over the best library."""
        return self.speedups.get(PLAIN, self.speedups[OURS])[0]

    def best(self, one_thread: bool) -> str:
        """The fastest library, on one thread or on all."""
        sides = [side for side in self.libraries if side.endswith(ONE_THREAD) == one_thread]
        return min(sides, key=self.median_ms)

    def median_ms(self, side: str) -> float:
        """Over all runs of a side."""
        return float(np.median(np.concatenate(self.times_ms[side])))


def measure(source: str, batch: int, budget: float | str, options: argparse.Namespace, folder: Path) -> Row:
    """Search with lanes and without, then let all take turns."""
    model = batched(source, batch, folder)
    config = settings(model, options.threads, budget, options)
    single = made(folder / "single")
    if budget == EXACT:
        for other, _ in wanted(options):
            measured = folder.with_name(folder_name(source, batch, options.threads, other))
            share_baselines(measured / "run", made(folder / "run"))
            share_baselines(measured / "single", single)
    result = evaluate(config, made(folder / "run"), LineReporter(), Flow.result)
    limits = Store(folder / "run" / "work").get(LIMITS, Limits)
    assert limits is not None
    evaluate(settings(model, 1, budget, options), single, LineReporter(), lambda flow: flow.baselines)
    all_threads = best_alone(folder / "run", limits)
    one_thread = {f"{name}, {ONE_THREAD}": way for name, way in best_alone(single, limits).items()}
    libraries = {**all_threads, **one_thread}
    sides = {name: ["session", str(way.artifact)] for name, way in libraries.items()}
    in_lanes = [region for region in result.placement if region.backend == LANES]
    plain_answer = result.answer
    if in_lanes:
        plain_answer = without_lanes(config, folder).answer
        sides[PLAIN] = ["session", str(folder / "plain" / "best.collage")]
    sides[OURS] = ["session", str(folder / "run" / "best.collage")]
    turns = take_turns(sides, usable_cores()[: options.threads], options.rounds, options.turn)
    best = min(all_threads, key=lambda name: median_ms(turns, name))
    over = {side: ratio(turns, best, side) for side in (OURS, PLAIN) if side in turns}
    return Row(
        model=source,
        batch=batch,
        threads=options.threads,
        budget=budget,
        environment={**result.environment, **result.target},
        answer=result.answer,
        plain_answer=plain_answer,
        error=result.accuracy.error_search,
        libraries={name: way.name for name, way in libraries.items()},
        regions=len(result.placement),
        in_lanes=[(engine_name(region.backend, region.variant), len(region.nodes)) for region in in_lanes],
        nodes=sum(len(region.nodes) for region in result.placement),
        times_ms={name: [turn.times_ms for turn in turns[name]] for name in turns},
        speedups={side: (found.estimate, found.low, found.high) for side, found in over.items()},
        seconds=result.wall_seconds,
    )


def settings(model: str, threads: int, budget: float | str, options: argparse.Namespace) -> Config:
    """The configuration of one run."""
    values = {"target.threads": threads, "accuracy.budget": budget, "search.seconds": options.seconds}
    said = [*(f"{key}={value}" for key, value in values.items()), *options.set]
    return parse_config({"model": {"source": model}}, said, "benchmark")


def made(folder: Path) -> Path:
    """The folder, which is there then."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def without_lanes(config: Config, folder: Path) -> Result:
    """The same run with every backend but lanes."""
    others = [backend.name for backend in select_backends(()) if backend.name != LANES]
    plain = config.model_copy(update={"backends": config.backends.model_copy(update={"use": others})})
    share_baselines(folder / "run", made(folder / "plain"))
    return evaluate(plain, folder / "plain", LineReporter(), Flow.result)


def batched(source: str, batch: int, folder: Path) -> str:
    """The model that takes ``batch`` samples where ``source`` takes one: the source itself, or a file in ``folder``.

    Every input's first size is the batch, and so is that of tensors that are reshaped to a shape beginning with 1.
    """
    source = model_source(source)
    if batch == 1:
        return source
    path = made(folder) / "batched.onnx"
    model = load_model(source).original
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[0] not in weights and node.input[1] in weights:
            shape = numpy_helper.to_array(weights[node.input[1]]).copy()
            if shape[0] == 1:
                shape[0] = batch
                weights[node.input[1]].CopyFrom(numpy_helper.from_array(shape, node.input[1]))
    names = [value.name for value in model.graph.output]
    del model.graph.value_info[:], model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True), path)
    return str(path)


def table(rows: Sequence[Row]) -> Table:
    """Medians in ms, ratios over the best library, and what the bound allows."""
    shown = markdown(
        "network", "bound", "best library", "ms", "ours, ms", "ratio", "95 %", "without lanes", "reached",
        "regions", "in lanes",
    )  # fmt: skip
    for row in rows:
        best = row.best(one_thread=False)
        value, low, high = row.speedups[OURS]
        lanes = f"{len(row.in_lanes)}, {sum(count for _, count in row.in_lanes) / row.nodes:.0%} of the operators"
        shown.add_row(
            (row.model.partition(":")[2] or row.model) + (f" x {row.batch}" if row.batch > 1 else ""),
            f"{row.bound:.2f}",
            row.libraries[best], f"{row.median_ms(best):.2f}", f"{row.median_ms(OURS):.2f}", f"{value:.3f}",
            f"{low:.3f} to {high:.3f}", f"{row.plain:.3f}",
            f"{row.reached:.0%}" if row.bound >= ALLOWS else "", str(row.regions), lanes if row.in_lanes else "none",
        )  # fmt: skip
    return shown


def summary(rows: Sequence[Row]) -> str:
    """Geometric mean of the ratios where the bound allows a tenth, with lanes and without; the least of all."""
    allowed = [row for row in rows if row.bound >= ALLOWS]
    least = min(rows, key=lambda row: row.speedups[OURS][0])
    told = [f"least: {least.speedups[OURS][0]:.3f}, {least.model}"]
    if allowed:
        with_lanes = geometric_mean(row.speedups[OURS][0] for row in allowed)
        plain = geometric_mean(row.plain for row in allowed)
        told.append(
            f"geometric mean of the {len(allowed)} whose bound is {ALLOWS:.2f} or more: {with_lanes:.3f}, "
            f"without lanes {plain:.3f}"
        )
    return "; ".join(told)


def wanted(options: argparse.Namespace) -> Iterator[tuple[float | str, int]]:
    """Precisions and batches, in the order in which they are measured."""
    for budget in options.precisions.split(","):
        for batch in options.batches.split(","):
            yield (budget if budget == EXACT else float(budget)), int(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--precisions", default="0.02,exact", help="budgets, separated by commas")
    parser.add_argument("--batches", default="1", help="separated by commas")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn")
    parser.add_argument("--folder", type=Path, help="keeps the runs")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for the tool")
    options = parser.parse_args()
    rows = Rows(options.output, Row)
    with tempfile.TemporaryDirectory() as work:
        for budget, batch in wanted(options):
            mine = []
            for source in options.models:
                run = partial(measure, source, batch, budget, options)
                key = (source, batch, options.threads, budget)
                found = rows.get(key, options.folder or Path(work), run)
                if found is not None:
                    mine.append(found)
            if mine:
                print(f"\nbudget {budget}, {options.threads} threads, batch {batch}")
                show(table(mine))
                print(summary(mine), flush=True)


if __name__ == "__main__":
    main()
