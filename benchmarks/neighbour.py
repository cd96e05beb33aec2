"""What a neighbour on the other core costs each backend: why a search times one placement at a time.

    python benchmarks/neighbour.py neighbour.json [--model builtin:squeezenet] [--rounds 20] [--seconds 0.3]

Every backend runs the whole model on one thread on the first core, alone and beside each backend that runs it on the
second core. Given is the time beside the neighbour over the time alone, paired by round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from turns import REST_S, Turn, begin_turn, end_turn, ratio, start

from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.report.progress import LineReporter
from collage_evo.run.open import open_run
from collage_evo.run.stages.singles import measure_baselines
from collage_evo.target.slots import acquire_slot, usable_cores

ALONE = "alone"
LEAD_S = 0.1
"""The neighbour begins so much earlier and ends later: five warm-up runs and the difference between the two."""


def measure(source: str, rounds: int, seconds: float) -> dict[str, dict[str, list[Turn]]]:
    """Turns of each backend, by its neighbour, in order of rounds."""
    here, there = usable_cores()[:2]
    config = parse_config({"model": {"source": source}}, (), "benchmark")
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        with open_run(config, Path(work), LineReporter()) as (context, _):
            found = measure_baselines(context, select_backends(()))
        slot = acquire_slot(((here, there),))
        assert slot is not None  # it waits for ever
        stack.callback(slot.release)
        sides = {b.name: ["execute", str(b.artifact)] for b in found if b.outcome.ok}
        timed = {name: stack.enter_context(start(arguments, [here])) for name, arguments in sides.items()}
        beside = {name: stack.enter_context(start(arguments, [there])) for name, arguments in sides.items()}
        turns: dict[str, dict[str, list[Turn]]] = {name: {ALONE: [], **{n: [] for n in sides}} for name in sides}
        for index in range(rounds + 1):
            for neighbour in (ALONE, *sides):
                for name, process in timed.items():
                    time.sleep(REST_S)
                    if neighbour != ALONE:
                        begin_turn(beside[neighbour], seconds + 2 * LEAD_S)
                        time.sleep(LEAD_S)
                    begin_turn(process, seconds)
                    turn = end_turn(process)
                    if neighbour != ALONE:
                        end_turn(beside[neighbour])
                    if index:  # the first round loads and warms up
                        turns[name][neighbour].append(turn)
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    options = parser.parse_args()
    turns = measure(options.model, options.rounds, options.seconds)
    raw = {name: {by: [asdict(turn) for turn in rounds] for by, rounds in of.items()} for name, of in turns.items()}
    options.output.write_text(json.dumps(raw))
    shown = Table("backend", *(f"beside {name}" for name in turns))
    for name, of in turns.items():
        shown.add_row(name, *(str(ratio(of, neighbour, ALONE)) for neighbour in turns))
    Console(width=160).print(shown)


if __name__ == "__main__":
    main()
