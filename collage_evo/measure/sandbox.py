"""Sandbox for jobs: one worker process that may die, and the reason if it did."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, cast

import psutil

from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.measure.build.cache import PieceCache
from collage_evo.measure.exclusive import go_on
from collage_evo.measure.fork_server import WorkerProcess, start_worker
from collage_evo.measure.jobs import A, Answer, Asks, Begin, Inherits, Job, Message, RaceJob, Setting, Waits
from collage_evo.placement.failure import Failure, Fault
from collage_evo.target.presence import Doing, present
from collage_evo.target.private import SHARED, machine_directory, shared_temporary
from collage_evo.target.target import CPU

RECYCLE_SHARE = 0.25
"""Libraries retain memory after a region is freed. A process above this share of its limit is replaced between jobs,
so that no candidate pays for the memory of earlier ones."""
RECYCLE_SHARE_ON_DEVICE = 0.75
"""The same share where a device takes part: its libraries take gigabytes of the host, and seconds to start."""


_CLOSED = Failure(Fault.CLOSED, "the measuring process was ended")


class Sandbox:
    """One worker process, started when first needed and again after it died. One thread calls it at a time.

    Args:
        setting: what all its jobs share.
        cores: the cores it is pinned to; empty for all.
        memory_bytes: resident memory at which it is killed.
    """

    def __init__(self, setting: Setting, cores: tuple[int, ...], memory_bytes: int) -> None:
        self._setting = setting
        self._cores = cores
        self._memory = memory_bytes
        self._running: _Running | None = None
        self._changing = threading.Lock()
        """Held while ``_running`` changes: the thread that takes a process out of it ends it."""
        self._closed = False
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

    def call(self, job: Asks[A], timeout_s: float) -> A | Failure:
        """Run ``job``. A crash, a hang past ``timeout_s`` or too much memory is a failure like any other.

        The timeout excludes time in which the process waits for others, is halted for them, or starts.

        Raises:
            InputError: the operating system refuses what all jobs need.
        """
        inherited: list[str] = []
        try:
            return self._exchange(job, timeout_s, inherited)
        except _Died as death:
            if not inherited or death.failure.fault in (Fault.FAR_BEHIND, Fault.CLOSED):
                return death.failure
        # Pieces that another run built may be the cause of the crash: they are rebuilt, and the job is repeated once.
        cache = PieceCache(Path(self._setting.cache), self._setting.cache_bytes)
        for key in inherited:
            cache.discard(key)
        try:
            return self._exchange(job, timeout_s, [])
        except _Died as death:
            return death.failure

    def _exchange(self, job: Asks[A], timeout_s: float, inherited: list[str]) -> A | Failure:
        """The answer to ``job``; adds to ``inherited`` the keys of other runs' pieces that it uses.

        Raises:
            _Died: the process ended by itself.
            InputError: as for :meth:`call`.
        """
        running = self._started()
        process = running.process
        request = to_json(job, Job)
        try:
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it died, or another thread closed its pipe
            raise _Died(self._died(running)) from None
        deadline = time.monotonic() + timeout_s
        while True:
            looked = time.monotonic()
            try:
                line = running.lines.get(timeout=0.25)
            except queue.Empty:
                if _halted(process.pid):
                    deadline += time.monotonic() - looked
                    if not any(note.doing is Doing.TIMES for note in present(machine_directory())):
                        # the process that halted it was killed together with its run
                        os.killpg(process.pid, signal.SIGCONT)
                if time.monotonic() > deadline:
                    self._end()
                    return Failure(Fault.HANG, f"no answer within {timeout_s:g} s")
                if _resident(process.pid) > self._memory:
                    self._end()
                    return Failure(Fault.MEMORY, f"used more than {self._memory / 2**30:.1f} GiB")
                continue
            if not line:
                raise _Died(self._died(running))
            answer = from_json(line, Message)
            if isinstance(answer, Waits):
                deadline = time.monotonic() + timeout_s
                continue
            if isinstance(answer, Inherits):
                inherited.append(answer.key)
                continue
            if isinstance(answer, Failure) and answer.fault is Fault.SYSTEM:
                raise InputError(answer.message)
            reusable = isinstance(job, RaceJob) or _resident(process.pid) <= self._share * self._memory
            if not reusable or self._spoilt(answer):
                self._end()
            return cast(A | Failure, answer)

    @property
    def _share(self) -> float:
        return RECYCLE_SHARE if self._setting.target.device == CPU else RECYCLE_SHARE_ON_DEVICE

    def _spoilt(self, answer: Answer) -> bool:
        """Whether later jobs would suffer from this one: libraries keep a device's memory, and no process survives an
        error of the device, whichever library reports it first."""
        if self._setting.target.device == CPU or not isinstance(answer, Failure):
            return False
        return answer.fault in (Fault.MEMORY, Fault.RAISED, Fault.REFUSED)

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

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> WorkerProcess:
        """The process, started if necessary, without waiting for its imports.

        Raises:
            _Died: the sandbox is closed.
        """
        return self._started().process

    def _started(self) -> _Running:
        with self._changing:
            if self._running is not None and self._running.process.poll() is None:
                return self._running
        self._end()
        with self._changing:
            if self._closed:
                raise _Died(_CLOSED)
            self._running = self._new()
            return self._running

    def _new(self) -> _Running:
        # Deletes what killed libraries leave in TMPDIR (PyTorch unpacks its archives there) with the process.
        scratch = tempfile.TemporaryDirectory(prefix="collage_evo-", ignore_cleanup_errors=True)
        variables = {"OPENBLAS_NUM_THREADS": "1", "TMPDIR": scratch.name, SHARED: str(shared_temporary())}
        try:
            process = start_worker(scratch.name, self._stderr.fileno(), variables)
        except ChildProcessError as error:
            raise _Died(Failure(Fault.CRASH, str(error))) from None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True).start()
        process.stdin.write(to_json(Begin(self._setting, self._cores)) + "\n")
        return _Running(process, scratch, lines)

    def _died(self, running: _Running) -> Failure:
        code = running.process.wait()
        if self._closed:
            return _CLOSED
        self._end()
        if code == -signal.SIGALRM:
            return Failure(Fault.FAR_BEHIND, "given up during its first run")
        if code == -signal.SIGKILL:  # not by this program, which would not send it
            return Failure(Fault.MEMORY, "killed by SIGKILL, as the system does when memory is short")
        if code < 0:
            return Failure(Fault.CRASH, f"killed by {signal.Signals(-code).name}")
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return Failure(Fault.CRASH, f"exit code {code}: {lines[-1] if lines else 'nothing on standard error'}")


@dataclass(frozen=True)
class _Running:
    """A process, its temporary directory and its output; the code that removes it from the sandbox ends it."""

    process: WorkerProcess
    scratch: tempfile.TemporaryDirectory[str]
    lines: queue.Queue[str]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.scratch.cleanup()
        go_on(machine_directory())  # it may have been timing, with others halted


class _Died(Exception):
    """The worker process ended by itself; ``failure`` is the reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def _pump(source: IO[str], lines: queue.Queue[str]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in source:
            lines.put(line)
    lines.put("")


def _halted(pid: int) -> bool:
    """Whether it is halted, so that another could time."""
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
