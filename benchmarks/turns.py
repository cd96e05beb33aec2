"""Comparisons of whole processes in turns, as raw times and paired ratios."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from collage_evo.answer.sequential import Ratio
from collage_evo.hardware.slots import acquire_slot
from collage_evo.hardware.target import CPU, Target
from collage_evo_cuda.runner import WARM_UP_S

REST_S = 0.1
"""Before each turn, so that the threads of the side before have gone to sleep."""
SIDE = Path(__file__).with_name("side.py")


@dataclass(frozen=True)
class Turn:
    """Times of single runs in ms, and the minor page faults of all of them."""

    times_ms: tuple[float, ...]
    page_faults: int

    @property
    def median_ms(self) -> float:
        return float(np.median(self.times_ms))


Rounds = Mapping[str, Sequence[Turn]]
"""The turns of each side, in order of rounds."""


class SideDied(SystemExit):
    """A side ended by itself."""


def take_turns(
    sides: Mapping[str, Sequence[str]],
    cores: Sequence[int],
    rounds: int,
    seconds: float,
    device: str = CPU,
    may_die: Collection[str] = (),
) -> Rounds:
    """Let ``sides`` (arguments of ``side.py``) time themselves in turns, in another order each round.

    So none always follows the same other, whose threads and caches it would find. A ``device`` beside the cores is
    held too, and warmed up before each turn. Sides of ``may_die`` that die in the first round are left out.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    warm_s = 0.0 if device == CPU else WARM_UP_S
    with contextlib.ExitStack() as stack:
        slot = acquire_slot((tuple(cores),), besides=Target(device).locks)
        assert slot is not None  # it waits for ever
        stack.callback(slot.release)
        processes = {name: stack.enter_context(start(arguments, cores)) for name, arguments in sides.items()}
        names = list(sides)
        for index in range(rounds + 1):
            for name in random.Random(index).sample(names, len(names)):
                time.sleep(REST_S)
                try:
                    begin_turn(processes[name], seconds, warm_s)
                    turn = end_turn(processes[name])
                except SideDied as died:
                    if index or name not in may_die:
                        raise
                    print(f"{name} is left out: {died}", flush=True)
                    names.remove(name)
                    del turns[name]
                    continue
                if index:  # the first round loads and warms up
                    turns[name].append(turn)
    return turns


def start(arguments: Sequence[str], cores: Sequence[int]) -> subprocess.Popen[str]:
    """A side in a process of its own on ``cores``."""
    return subprocess.Popen(
        [sys.executable, str(SIDE), ",".join(map(str, cores)), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def begin_turn(process: subprocess.Popen[str], seconds: float, warm_s: float = 0.0) -> None:
    """Let a side run for so long, after running untimed for ``warm_s``."""
    assert process.stdin is not None
    line = json.dumps({"seconds": seconds, "warm_s": warm_s}) + "\n"
    with contextlib.suppress(BrokenPipeError):  # end_turn says that it died
        os.write(process.stdin.fileno(), line.encode())  # unbuffered: a rest would be an error later


def end_turn(process: subprocess.Popen[str]) -> Turn:
    """Wait for the end of a side's turn."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SideDied(f"a side died; run it by hand: {shlex.join(map(str, cast(list[str], process.args)))}")
    answer = json.loads(line)
    return Turn(tuple(answer["times_ms"]), answer["page_faults"])


def ratio(rounds: Rounds, name: str, other: str) -> Ratio:
    """Time of ``name`` over time of ``other``, paired by round."""
    pairs = zip(rounds[name], rounds[other], strict=True)
    return Ratio.of([float(np.log(a.median_ms / b.median_ms)) for a, b in pairs])


def median_ms(rounds: Rounds, name: str) -> float:
    """Median over all runs of a side."""
    return float(np.median([t for turn in rounds[name] for t in turn.times_ms]))


def faults_per_run(rounds: Rounds, name: str) -> float:
    """Minor page faults a run of a side."""
    turns = rounds[name]
    return sum(turn.page_faults for turn in turns) / sum(len(turn.times_ms) for turn in turns)
