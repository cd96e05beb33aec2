"""Sandbox for jobs: one worker process that may die, and the reason if it did."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import psutil

from collage_evo.backends.probing import PROBED, known_probes
from collage_evo.codec import from_json, to_json
from collage_evo.errors import SystemRefuses
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.exclusive import go_on
from collage_evo.fitness.fork_server import WorkerProcess, describe_end, start_server, start_worker
from collage_evo.fitness.jobs import (
    A,
    Answer,
    Asks,
    Begin,
    Inherits,
    Job,
    Message,
    PlacementJob,
    RaceJob,
    Setting,
    Waits,
)
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.presence import Doing, present
from collage_evo.hardware.private import SHARED, machine_directory, shared_temporary

RECYCLE_SHARE = 0.25
"""Libraries retain memory after a region is freed. A process above this share of its limit is replaced between jobs,
so that no candidate pays for the memory of earlier ones."""
RECYCLE_SHARE_ACCELERATED = 0.75
"""The same share where an accelerator takes part: its libraries take gigabytes of the host, and seconds to start."""
_RAISED = (Fault.MEMORY, Fault.RAISED, Fault.REFUSED)
_CLOSED = Failure(Fault.CLOSED, "the measuring process was ended")


def _variables(python: str = "") -> dict[str, str]:
    """Additions to the environment of every worker process. What was probed here is not so in another ``python``."""
    return {
        "OPENBLAS_NUM_THREADS": "1",
        SHARED: str(shared_temporary()),
        PROBED: "{}" if python else known_probes(),
    }


def expect_workers() -> None:
    """Have the modules of worker processes imported while this process does something else: the first one then starts
    half a second sooner."""
    start_server(_variables())


class Sandbox(AbstractContextManager["Sandbox"]):
    """One worker process, started when first needed and again after it died. One thread calls it at a time.

    Args:
        setting: what all its jobs share.
        cores: the cores it is pinned to; empty for all.
        memory_bytes: resident memory at which it is killed.
        start: starts a worker process, as :func:`start_worker` does.
        clock: seconds.
    """

    def __init__(
        self,
        setting: Setting,
        cores: tuple[int, ...],
        memory_bytes: int,
        start: Callable[[str, int, Mapping[str, str]], WorkerProcess] = start_worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._clock = start, clock
        self._setting = setting
        self._cores = cores
        self._memory = memory_bytes
        self._running: _Running | None = None
        self._changing = threading.Lock()
        """Held while ``_running`` changes: the thread that takes a process out of it ends it."""
        self._closed = False
        self._cache = PieceCache(Path(setting.cache), setting.cache_bytes)
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

    def call(self, job: Asks[A], timeout_s: float) -> A | Failure:
        """Run ``job``. A crash, a hang past ``timeout_s`` or too much memory is a failure like any other.

        The timeout excludes time in which the process waits for others, is halted for them, or starts. If the process
        dies or raises after it used pieces that another run built, these may be the cause: they are rebuilt, and the
        job is repeated once.

        Raises:
            SystemRefuses: the operating system refuses what all jobs need.
        """
        inherited: list[str] = []
        for attempt in range(2):
            running: _Running | None = None
            try:
                running = self._started()
                running.send(to_json(job, Job))
                deadline = self._clock() + timeout_s
                while True:
                    asked = self._clock()
                    message = running.message()
                    if message is None:
                        if running.halted():
                            deadline += self._clock() - asked
                        if failure := self._exceeded(running, deadline, timeout_s):
                            return failure
                    elif isinstance(message, Waits):
                        deadline = self._clock() + timeout_s
                    elif isinstance(message, Inherits):
                        inherited.append(message.key)
                    else:
                        self._recycle(running, job, message)
                        if not (isinstance(message, Failure) and message.fault in _RAISED):
                            return cast(A, message)
                        failure = message
                        break
            except ChildProcessError as error:
                return Failure(Fault.CRASH, detail=str(error))
            except _Died:
                failure = _CLOSED if running is None else self._died(running, job.rule)
            if attempt or not inherited or failure.fault in (Fault.FAR_BEHIND, Fault.CLOSED):
                return failure
            self._end()
            for key in inherited:
                self._cache.discard(key)
        raise AssertionError("the second attempt returns")

    def _exceeded(self, running: _Running, deadline: float, timeout_s: float) -> Failure | None:
        """The failure of a process that exceeded its time or its memory, which is ended."""
        if self._clock() > deadline:
            failure = Failure(Fault.HANG, f"no answer within {timeout_s:g} s")
        elif running.resident_bytes > self._memory:
            failure = Failure(Fault.MEMORY, f"used more than {self._memory / 2**30:.1f} GiB")
        else:
            return None
        self._end()
        return failure

    def _recycle(self, running: _Running, job: Asks[Any], answer: Answer) -> None:
        """End a process from which later jobs would suffer.

        Raises:
            SystemRefuses: the operating system refused what all jobs need.
        """
        if isinstance(answer, Failure) and answer.fault is Fault.SYSTEM:
            raise SystemRefuses(answer.message)
        accelerated = self._setting.target.accelerated
        share = RECYCLE_SHARE_ACCELERATED if accelerated else RECYCLE_SHARE
        # Libraries keep an accelerator's memory, and no process survives an error of it, whichever library reports it
        # first.
        spoilt = accelerated and isinstance(answer, Failure) and answer.fault in _RAISED
        # Loading the reference run of a model of 1.3 GB took 8 to 16 of a placement's 20 to 35 s (EPYC, Zen 3).
        most = share * self._memory + (self._setting.reference_bytes if isinstance(job, PlacementJob) else 0)
        if spoilt or not (isinstance(job, RaceJob) or running.resident_bytes <= most):
            self._end()

    def close(self) -> None:
        """Kill the process, if there is one, and start none again. Any thread may close the sandbox during a call."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        """Kill the process, if there is one, and remove what it left."""
        with self._changing:
            running, self._running = self._running, None
        if running is not None:
            running.end()
            self._cache.remove_abandoned()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> WorkerProcess:
        """The process, started if necessary, without waiting until it is ready.

        Raises:
            _Died: the sandbox is closed.
            ChildProcessError: no worker process starts.
        """
        return self._started().process

    def _started(self) -> _Running:
        with self._changing:
            if self._running is not None and self._running.process.poll() is None:
                return self._running
        self._end()
        with self._changing:
            if self._closed:
                raise _Died
            self._running = self._new()
            return self._running

    def _new(self) -> _Running:
        # Deletes what killed libraries leave in TMPDIR (PyTorch unpacks its archives there) with the process.
        scratch = tempfile.TemporaryDirectory(prefix="collage_evo-", ignore_cleanup_errors=True)
        process = self._start(
            scratch.name, self._stderr.fileno(), {**_variables(self._setting.python), "TMPDIR": scratch.name}
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True).start()
        process.stdin.write(to_json(Begin(self._setting, self._cores)) + "\n")
        return _Running(process, scratch, lines)

    def _died(self, running: _Running, rule: str) -> Failure:
        code = running.process.wait()
        if self._closed:
            return _CLOSED
        self._end()
        if code == -signal.SIGALRM:
            return Failure(Fault.FAR_BEHIND, "given up during its first run", rule=rule)
        if code == -signal.SIGKILL:  # not by this program, which would not send it
            return Failure(Fault.MEMORY, "killed by SIGKILL, as the system does when memory is short")
        if code < 0:
            return Failure(Fault.CRASH, f"killed by {signal.Signals(-code).name}")
        return Failure(Fault.CRASH, detail=describe_end(code, self._stderr))


@dataclass(frozen=True)
class _Running:
    """A process, its temporary directory and its output; the code that removes it from the sandbox ends it."""

    process: WorkerProcess
    scratch: tempfile.TemporaryDirectory[str]
    lines: queue.Queue[str]

    def send(self, line: str) -> None:
        """Raise _Died if it ended, or another thread closed its pipe."""
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise _Died from None

    def message(self) -> Message | None:
        """Its next message; None if none comes for a moment. Raises _Died if it ended."""
        try:
            line = self.lines.get(timeout=0.25)
        except queue.Empty:
            return None
        if not line:
            raise _Died
        message: Message = from_json(line, Message)
        return message

    def halted(self) -> bool:
        """Whether it is halted, so that another could time; if none does, it goes on."""
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED:
                if not any(note.doing is Doing.TIMES for note in present(machine_directory())):
                    # the process that halted it was killed together with its run
                    os.killpg(self.process.pid, signal.SIGCONT)
                return True
        return False

    @property
    def resident_bytes(self) -> int:
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.scratch.cleanup()
        go_on(machine_directory())  # it may have been timing, with others halted


class _Died(Exception):
    """The worker process ended by itself, or the sandbox is closed."""


def _pump(source: IO[str], lines: queue.Queue[str]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in source:
            lines.put(line)
    lines.put("")
