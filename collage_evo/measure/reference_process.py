"""Reference run in a process of its own, for several threads: each line on its pipe starts a sample batch.

Two libraries' pools in one process slow each other down. In two processes that take turns they do not: the waiting
one sleeps on its pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from collage_evo.backends.registry import Origin, register_from
from collage_evo.codec import from_json, to_json
from collage_evo.measure.references import read_references
from collage_evo.measure.sample_batches import SampleBatch, sample_batch
from collage_evo.measure.stopwatch import SingleSession
from collage_evo.modules import module_command, module_environment
from collage_evo.runtime.artifact import load_artifact


class ReferenceRunEnded(Exception):
    """The process of a reference run ended, by itself or killed."""


class _Given(NamedTuple):
    """The first line that the process gets."""

    artifact: Path
    references: Path
    registered: tuple[Origin, ...]


class _Ran(NamedTuple):
    """Its answer: times in ms, and the processor time that it has used so far."""

    times_ms: SampleBatch
    used_s: float


class ReferenceProcess:
    """An artifact, loaded and ready to run in a child process on the cores of this one.

    Raises:
        ReferenceRunEnded: here and from each method.
    """

    def __init__(self, artifact: Path, references: Path, registered: Sequence[Origin]) -> None:
        # The child joins the process group of this one: a kill of the group ends both.
        self._process = subprocess.Popen(
            module_command("collage_evo.measure.reference_process"),
            env=module_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.used_s = 0.0
        """Time that its process has used of the cores."""
        self._ask(to_json(_Given(artifact, references, tuple(registered))))

    def sample_batch(self) -> SampleBatch:
        """Times of a few runs in a row, in ms."""
        return self._ask("")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

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
            raise ReferenceRunEnded(f"the process of the anchor ended with exit code {self._process.wait()}")
        times, self.used_s = from_json(answer, _Ran)
        return times


def serve(asked: TextIO, answers: TextIO) -> None:
    """Load the artifact that the first line names, and run a sample batch for each line after that."""

    def answer(times: SampleBatch) -> None:
        answers.write(to_json(_Ran(times, time.process_time())) + "\n")
        answers.flush()

    artifact, references, registered = from_json(asked.readline(), _Given)
    register_from(registered)
    at_work = SingleSession(load_artifact(artifact))
    at_work.feed(read_references(references)[0][0])
    at_work.session.execute()
    answer(())
    for _ in asked:
        answer(sample_batch(at_work))


if __name__ == "__main__":
    # Native libraries print to standard output: answers get a descriptor of their own.
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, private)
