"""Reference run, and timing against it: sample batches of both alternate, and only their ratio counts.

Clock drift and neighbours affect both sides alike, so few short batches are as precise as one long timing, and one
pair suffices for a slow placement. On several threads the reference run has a process of its own, which runs this
module: two libraries' pools in one process slow each other down. In two processes that take turns they do not: the
waiting one sleeps on its pipe.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

import numpy as np

from collage_evo.backends.registry import Origin, register_from
from collage_evo.codec import from_json, to_json
from collage_evo.fitness.references import read_timed
from collage_evo.fitness.timing import BATCH_RUNS, SampleBatch, SingleSession, batch_of, log_ratio, sample_batch
from collage_evo.hardware.interference import Others
from collage_evo.modules import module_command, module_environment
from collage_evo.pruning import LOST_PAIR
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.timing import LONG_S, WARM_UP_GAIN, Timing, TimingSettings, measure

LEAST_PAIRS = 3
"""Pairs that give a standard error. Chosen."""
FEWEST_PAIRS, PAIRS_S = 2, 2.5
"""Pairs that time a placement in a search where they take so many seconds. Chosen: two to four pairs of an encoder of
24 layers differed by 1 to 2.5 %, and the final comparison decides."""
STANDARD_ERRORS = 2.0
"""A median is taken to be known within so many standard errors. Chosen."""
NEAR_ERROR, NEAR_PAIRS = 0.01, 6
"""A latency that is known within this share after so many pairs is timed no further. Chosen;
``2d0817f2:benchmarks/repeatability.py`` shows how far measurements of one placement scatter."""


class ReferenceRun(Protocol):
    """An artifact that is loaded and ready to run."""

    @property
    def used_s(self) -> float:
        """Processor time that it has used in another process than this one."""

    def sample_batch(self) -> SampleBatch:
        """Times of a few runs in a row, in ms."""


class Runs(Protocol):
    """A loaded model that is fed and warm."""

    def execute(self) -> float | None:
        """Run once; ms, where the clock of the caller does not count."""


class ReferenceSession:
    """Reference run in this process."""

    used_s = 0.0

    def __init__(self, artifact: Path, references: Path) -> None:
        self._at_work = SingleSession(load_artifact(artifact, proven=True))
        self._at_work.feed(read_timed(references))
        self._at_work.execute()

    def sample_batch(self) -> SampleBatch:
        return sample_batch(self._at_work)


class ReferenceRunEnded(Exception):
    """The process of a reference run ended, by itself or killed."""


class _Request(NamedTuple):
    """The first line that the process gets."""

    artifact: Path
    references: Path
    registered: tuple[Origin, ...]


class _Ran(NamedTuple):
    """Its answer: times in ms, and the processor time that it has used so far."""

    times_ms: SampleBatch
    used_s: float


class ReferenceProcess:
    """Reference run in a child process on the cores of this one; another takes its place if it was killed.

    Raises:
        ReferenceRunEnded: here and from each method: the artifact does not run.
    """

    def __init__(self, artifact: Path, references: Path, registered: Sequence[Origin]) -> None:
        self._request = to_json(_Request(artifact, references, tuple(registered)))
        self.used_s = self._used_before_s = 0.0
        """Time that its processes have used of the cores."""
        self._start()

    def sample_batch(self) -> SampleBatch:
        try:
            return self._ask("")
        except ReferenceRunEnded:  # not the fault of the placement that is timed
            self._start()
            return self._ask("")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _start(self) -> None:
        # The child joins the process group of this one: a kill of the group ends both.
        self._process = subprocess.Popen(
            module_command("collage_evo.fitness.reference_run"),
            env=module_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._used_before_s = self.used_s
        self._ask(self._request)

    def _ask(self, line: str) -> SampleBatch:
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        try:
            pipe.write(line + "\n")
            pipe.flush()
            answer = answers.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ReferenceRunEnded(f"the process of the reference run ended with exit code {self._process.wait()}")
        times, used_s = from_json(answer, _Ran)
        self.used_s = self._used_before_s + used_s
        return times


def time_against(
    reference_run: ReferenceRun,
    reference_ms: float,
    tried: Runs,
    settings: TimingSettings,
    give_up_ms: float = math.inf,
    best_ms: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Milliseconds of ``tried``, one value per pair of sample batches: its ratio to the reference run, times
    ``reference_ms``, the reference run's latency.

    ``tried`` is fed and warm. ``settings`` bounds the runs and seconds; the timing ends earlier once the pairs decide
    it, which takes few pairs for a placement slower than ``give_up_ms`` or ``best_ms``.
    """
    begin, others = clock(), Others(lambda: reference_run.used_s)
    values: list[float] = []
    runs, timed_ms = 0, 0.0
    lost_ms = min(give_up_ms, best_ms)
    while True:
        # The second of a pair finds the caches as the first left them: the order alternates.
        before = len(values) % 2 == 0
        reference = reference_run.sample_batch() if before else ()
        batch = batch_of(measure(tried.execute, BATCH_RUNS, clock=clock))
        reference = reference if before else reference_run.sample_batch()
        values.append(reference_ms * math.exp(log_ratio([batch], [reference])))
        runs, timed_ms = runs + len(batch), timed_ms + sum(batch)
        enough = runs >= settings.min_runs and timed_ms >= settings.min_seconds * 1e3
        enough = enough or (len(values) >= FEWEST_PAIRS and clock() - begin >= PAIRS_S)
        if enough or _is_decided(values, lost_ms) or clock() - begin >= settings.max_seconds:
            return Timing(tuple(values), others.share())


def _is_decided(values_ms: Sequence[float], lost_ms: float) -> bool:
    """Whether the pairs so far show a latency above ``lost_ms``, or give the latency precisely enough."""
    if len(values_ms) < LEAST_PAIRS:
        return min(values_ms) > LOST_PAIR.number * lost_ms
    logs = np.log(values_ms)
    off = STANDARD_ERRORS * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    precise = off < NEAR_ERROR and len(logs) >= NEAR_PAIRS
    return precise or float(np.median(logs)) - off > math.log(lost_ms)


def warm_up(
    tried: Runs, runs: int, give_up_ms: float = math.inf, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Untimed runs; only one for a session that takes long or is far too slow, which has run before, if only for the
    check."""
    for _ in range(runs):
        start = clock()
        tried.execute()
        spent_ms = (clock() - start) * 1e3
        if spent_ms >= LONG_S * 1e3 or spent_ms > WARM_UP_GAIN * give_up_ms:
            return


def serve(asked: TextIO, answers: TextIO) -> None:
    """Load the artifact that the first line names, and run a sample batch for each line after that."""

    def answer(times: SampleBatch) -> None:
        answers.write(to_json(_Ran(times, time.process_time())) + "\n")
        answers.flush()

    artifact, references, registered = from_json(asked.readline(), _Request)
    register_from(registered)
    reference_run = ReferenceSession(artifact, references)
    answer(())
    for _ in asked:
        answer(reference_run.sample_batch())


if __name__ == "__main__":
    # Native libraries print to standard output: answers get a descriptor of their own.
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, private)
