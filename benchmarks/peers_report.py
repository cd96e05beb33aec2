"""Rows and tables of ``peers.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np
from rich import box
from rich.table import Table

OURS, RELOADED, SEARCH, DP, GREEDY = "ours", "reloaded", "search", "dynamic program", "greedy"
PYTORCH, OTHERS = "PyTorch", "the best other"
ONE_THREAD = "one thread"
"""The sides that take turns, and what the answer is compared with."""

Speedup = tuple[str, float, float, float]
"""Over which side, how much, and its 95 % interval."""


@dataclass(frozen=True)
class Row:
    """One network on one target, in milliseconds."""

    model: str
    device: str
    threads: int
    budget: float | str
    environment: Mapping[str, object]
    answer: str
    error: float | None
    """Relative 2-norm error of the answer's outputs, on the samples of the search."""
    baselines: Mapping[str, float | str]
    """Each library in each of its ways, as the run measured it; or why it did not run."""
    libraries: Mapping[str, str]
    """The way of each library that took turns."""
    reported_ms: float
    """What the run says of its answer."""
    times_ms: Mapping[str, Sequence[Sequence[float]]]
    """Of all runs, by side and turn."""
    speedups: Mapping[str, Mapping[str, Speedup]]
    """Of the answer, and of the search's best where that is another."""
    where: Mapping[str, Mapping[str, int]]
    """Nodes by engine and device, of each placement."""
    search: Mapping[str, float]

    @property
    def bound(self) -> float | None:
        """How many times as fast perfect lanes of one thread each would be; None where nothing ran on one thread."""
        single = [side for side in self.times_ms if side.endswith(ONE_THREAD)]
        if not single:
            return None
        return self.threads * self.median_ms(self.speedups[OURS][OTHERS][0]) / min(map(self.median_ms, single))

    def median_ms(self, side: str) -> float:
        """Over all runs of a side."""
        return float(np.median(np.concatenate(self.times_ms[side])))

    @property
    def key(self) -> tuple[object, ...]:
        return self.model, self.device, self.threads, self.budget


def print_row(row: Row) -> None:
    """What ran where, what else the run says, and whether the answer is as fast in a fresh process."""
    print(f"\n{row.model}, {row.device}, threads {row.threads}, budget {row.budget}: {row.answer}, error {row.error}")
    for name, latency in row.baselines.items():
        print(f"  {name} alone: {latency if isinstance(latency, str) else f'{latency:.3f} ms'}")
    for name, nodes in row.where.items():
        print(f"  {name} ran {', '.join(f'{count} nodes in {engine}' for engine, count in nodes.items())}")
    for side, ratios in row.speedups.items():
        for what, (name, median, low, high) in ratios.items():
            rival = f" ({name})" if name != what else ""
            print(f"  {side} is {median:.3f} [{low:.3f}, {high:.3f}] times as fast as {what}{rival}")
    reloaded = row.median_ms(RELOADED)
    share = reloaded / row.reported_ms
    print(f"  reported {row.reported_ms:.4f} ms, reloaded {reloaded:.4f} ms: {share:.3f} of it")
    figures = {name: f"{figure:.3g}" for name, figure in row.search.items()}
    print(f"  search: {', '.join(f'{name} {figure}' for name, figure in figures.items())}")


def table(rows: Sequence[Row]) -> Table:
    """Medians in ms of the sides, and the speedups of the answer."""
    last = (GREEDY, DP, OURS)
    left_out = {*last, SEARCH, RELOADED}
    every = dict.fromkeys(side for row in rows for side in row.times_ms)
    sides = [side for side in every if side not in left_out and not side.endswith(ONE_THREAD)]
    bounded = any(row.bound for row in rows)
    over = (f"over {what}" for what in (OTHERS, GREEDY, DP))
    shown = Table("network, ms", *sides, *last, *over, *["bound"] * bounded, box=box.MARKDOWN)
    for row in rows:
        times = [f"{row.median_ms(name):.3f}" if name in row.times_ms else "" for name in (*sides, *last)]
        ours = row.speedups[OURS]
        gains = [f"{ours[what][1]:.3f}" if what in ours else "" for what in (OTHERS, GREEDY, DP)]
        bound = ([f"{row.bound:.2f}"] if row.bound else [""]) if bounded else []
        shown.add_row(row.model.partition(":")[2] or row.model, *times, *gains, *bound)
    return shown


def summary(rows: Sequence[Row]) -> str:
    """Geometric means of the speedups, and the least of each."""
    lines = []
    for what in (OTHERS, GREEDY, DP):
        ratios = [row.speedups[OURS][what][1] for row in rows if what in row.speedups[OURS]]
        if ratios:
            mean = geometric_mean(ratios)
            count, least = len(ratios), min(ratios)
            lines.append(f"over {what}: {mean:.3f} in the geometric mean of {count}, {least:.3f} at least")
    return "\n".join(lines)
