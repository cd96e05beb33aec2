"""How many multiplications a second the answers of a contest of precisions do, beside the most that int8 does here.

    python benchmarks/precision_rates.py FOLDER/*/1_*.json

Takes races on one thread that ``precision.py`` has left, and looks at the largest budget of each. Prints a row for
each network: the multiplications of its convolutions and products, in billions; the fastest tool that keeps the
budget and ours, each with its billions a second; and how many times as fast as that tool an answer would be whose
multiplications all ran at the most that int8 does, and nothing else took any time. The most is measured: the best
round of ten convolutions in a row in int8 in OpenVINO, of 256 to 256 channels, 3x3, on 28x28 places.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from contest.race import Race, read_race
from contest.table import BEST, OURS, Table
from contest.task import Task
from int8_error import samples
from native import openvino_model

from collage_evo.graph.load import ModelFile
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.roofline import multiply_adds
from collage_evo.models.builder import Builder

_CHANNELS, _SIZE, _KERNEL, _DEPTH, _ROUNDS = 256, 28, 3, 10, 100


def convolutions() -> onnx.ModelProto:
    """One behind the other in int8, so that rounding the input and giving the output in float32 take little of it."""
    b, rng = Builder("convolutions"), np.random.default_rng(0)
    scale, middle = b.const(np.float32(0.02)), b.const(np.uint8(128))

    def rounded(x: str) -> str:
        return b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, middle), scale, middle)

    numbers = rng.integers(-127, 128, (_CHANNELS, _CHANNELS, _KERNEL, _KERNEL)).astype(np.int8)
    weights = b.op("DequantizeLinear", b.const(numbers), b.const(np.float32(0.0003)), b.const(np.int8(0)))
    y = rounded(b.input("x", (1, _CHANNELS, _SIZE, _SIZE)))
    for _ in range(_DEPTH):
        y = rounded(b.op("Conv", y, weights, kernel_shape=[_KERNEL] * 2, pads=[_KERNEL // 2] * 4))
    return b.model(y)


def most() -> float:
    """Billions of multiplications a second of :func:`convolutions`, in their fastest round on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "convolutions.onnx"
        onnx.save(convolutions(), path)
        compiled = openvino_model(path, 1)
    x = np.random.default_rng(1).standard_normal((1, _CHANNELS, _SIZE, _SIZE)).astype(np.float32)
    seconds = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        compiled([x])
        seconds.append(time.perf_counter() - begin)
    return _DEPTH * (_CHANNELS * _SIZE * _KERNEL) ** 2 / min(seconds) / 1e9


def billions(task: Task) -> float:
    """Multiplications of the convolutions and products of a task's model, as it is searched."""
    given = samples(task, task.given, 1)
    graph = searchable(prepare_model(ModelFile(str(task.model)), {}, 1, threads=1, feeds=given), 1).graph
    return multiply_adds(graph, graph.all_nodes) / 1e9


def row(race: Race, limit: float) -> str:
    """The cells of a task; empty where ours breaks the budget. ``limit`` is in billions a second."""
    (one, *_) = Table(race).standings(max(race.task.budgets))
    if not one.gains:
        return ""
    work = billions(race.task)
    speeds = [f"{one.ms[who]:.3g} | {work / one.ms[who] * 1e3:.0f}" for who in (BEST, OURS)]
    bound = one.ms[BEST] * limit / work / 1e3
    return f"| {race.task.name} | {work:.3g} | {one.budget} | {one.best} | {' | '.join(speeds)} | {bound:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="+", type=Path)
    races = [read_race(path) for path in parser.parse_args().races]
    limit = most()
    print(f"int8 at most {limit:.0f} billion multiplications a second\n")
    print("| network | billions | budget | best tool | ms | billions a second | ours | billions a second | at most |")
    print("|---" * 9 + "|")
    for line in filter(None, (row(race, limit) for race in races)):
        print(line)


if __name__ == "__main__":
    main()
