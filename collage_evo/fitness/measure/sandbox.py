"""Runs jobs in a process that may die: takes a job, gives its answer, or the reason why there is none."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, cast

import psutil

from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.fitness.build.cache import PieceCache
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.measure.answers import A, Answer, Asks, Inherits, Said, Waits
from collage_evo.fitness.measure.exclusive import go_on
from collage_evo.fitness.measure.jobs import Begin, Job, RaceJob, Setting
from collage_evo.target.presence import Doing, present
from collage_evo.target.private import SHARED, machine_directory, shared_temporary
from collage_evo.target.target import CPU

RECYCLE_SHARE = 0.25
"""Libraries keep memory after a region is gone. A process above this share of its limit is replaced between
jobs, so that no candidate is blamed for what earlier ones left behind."""
RECYCLE_SHARE_ON_DEVICE = 0.75
"""The same where a device takes part: its libraries alone take gigabytes of the host, and seconds to start."""


class Sandbox:
    """One measuring process, started when first needed and again after it died. Not for several threads.

    Args:
        setting: what all its jobs share.
        cores: the cores it is pinned to; empty for all.
        memory_bytes: resident memory at which it is killed.
    """

    def __init__(self, setting: Setting, cores: tuple[int, ...], memory_bytes: int) -> None:
        self._setting = setting
        self._cores = cores
        self._memory = memory_bytes
        self._process: subprocess.Popen[str] | None = None
        self._scratch: tempfile.TemporaryDirectory[str]  # the process's own
        self._lines: queue.Queue[str] = queue.Queue()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

    def call(self, job: Asks[A], timeout_s: float) -> A | Failure:
        """Do ``job``. A crash, a hang past ``timeout_s`` or too much memory is a failure like any other.

        Time that it waits for other measuring processes, is halted for them, or takes to start, does not count. A
        crash on pieces that another run built may be those pieces' fault: they are built again, and the job is done
        once more.

        Raises:
            InputError: the operating system refuses what all jobs need.
        """
        inherited: list[str] = []
        try:
            return self._exchange(job, timeout_s, inherited)
        except _Died as death:
            if not inherited or death.failure.fault is Fault.FAR_BEHIND:
                return death.failure
        cache = PieceCache(Path(self._setting.cache), self._setting.cache_bytes)
        for key in inherited:
            cache.discard(key)
        try:
            return self._exchange(job, timeout_s, [])
        except _Died as death:
            return death.failure

    def _exchange(self, job: Asks[A], timeout_s: float, inherited: list[str]) -> A | Failure:
        """The answer to ``job``; ``inherited`` takes the keys of other runs' pieces that it uses.

        Raises:
            _Died: the process ended by itself.
            InputError: as for :meth:`call`.
        """
        process = self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(to_json(job, Job) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise _Died(self._died()) from None
        deadline = time.monotonic() + timeout_s
        while True:
            looked = time.monotonic()
            try:
                line = self._lines.get(timeout=0.25)
            except queue.Empty:
                if _halted(process.pid):
                    deadline += time.monotonic() - looked
                    if not any(note.doing is Doing.TIMES for note in present(machine_directory())):
                        os.killpg(process.pid, signal.SIGCONT)  # who halted it was killed together with its run
                if time.monotonic() > deadline:
                    self.close()
                    return Failure(Fault.HANG, f"no answer within {timeout_s:g} s")
                if _resident(process.pid) > self._memory:
                    self.close()
                    return Failure(Fault.MEMORY, f"used more than {self._memory / 2**30:.1f} GiB")
                continue
            if not line:
                raise _Died(self._died())
            answer = from_json(line, Said)
            if isinstance(answer, Waits):
                deadline = time.monotonic() + timeout_s
                continue
            if isinstance(answer, Inherits):
                inherited.append(answer.key)
                continue
            if isinstance(answer, Failure) and answer.fault is Fault.SYSTEM:
                raise InputError(answer.message)
            kept = isinstance(job, RaceJob) or _resident(process.pid) <= self._share * self._memory
            if not kept or self._spoilt(answer):
                self.close()
            return cast(A | Failure, answer)

    @property
    def _share(self) -> float:
        return RECYCLE_SHARE if self._setting.target.device == CPU else RECYCLE_SHARE_ON_DEVICE

    def _spoilt(self, answer: Answer) -> bool:
        """Whether later jobs would pay for this one: libraries keep a device's memory, and no process outlives an
        error of the device, whoever hears of it first."""
        if self._setting.target.device == CPU or not isinstance(answer, Failure):
            return False
        return answer.fault in (Fault.MEMORY, Fault.RAISED, Fault.REFUSED)

    def close(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process = None
            self._scratch.cleanup()
            go_on(machine_directory())  # it may have been timing, with others halted

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> subprocess.Popen[str]:
        """The process, started if need be; that it reads its modules is not waited for."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        # What libraries leave in TMPDIR when they are killed (PyTorch unpacks its archives there) goes with it.
        self._scratch = tempfile.TemporaryDirectory(prefix="collage_evo-", ignore_cleanup_errors=True)
        # A group of its own: Ctrl-C reaches only the process the person sees, which then ends this one. In the same
        # session, so that where that one is killed while this one is halted, the system ends this one too.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "collage_evo.fitness.measure.process", str(os.getpid()), self._scratch.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            process_group=0,
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "TMPDIR": self._scratch.name,
                SHARED: str(shared_temporary()),
            },
        )
        self._lines = queue.Queue()
        threading.Thread(target=_pump, args=(self._process.stdout, self._lines), daemon=True).start()
        assert self._process.stdin is not None
        self._process.stdin.write(to_json(Begin(self._setting, self._cores)) + "\n")
        return self._process

    def _died(self) -> Failure:
        process = self._process
        code = process.wait() if process is not None else 0
        self.close()
        if code == -signal.SIGALRM:
            return Failure(Fault.FAR_BEHIND, "given up during its first run")
        if code == -signal.SIGKILL:  # not by this program, which would not ask
            return Failure(Fault.MEMORY, "killed by SIGKILL, as the system does when memory is short")
        if code < 0:
            return Failure(Fault.CRASH, f"killed by {signal.Signals(-code).name}")
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return Failure(Fault.CRASH, f"exit code {code}: {lines[-1] if lines else 'nothing on standard error'}")


class _Died(Exception):
    """The measuring process ended by itself; ``failure`` says how."""

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
