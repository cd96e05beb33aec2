"""What tests of measuring processes share: a small model with its reference, jobs on it, and clusters."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.backends.registry import get_backend
from collage_evo.codec import from_json, to_json
from collage_evo.fitness.jobs import (
    Begin,
    Compiled,
    CostJob,
    Job,
    Measured,
    Message,
    OpenJob,
    Setting,
    WholeJob,
    WorkFiles,
)
from collage_evo.fitness.references import write_references
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.worker import serve
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.genome.failure import Failure
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from tests.support.machine import FakeMachine, FakeProcess, setting_of
from tests.support.models import chain
from tests.support.quick import QUICK_ALL_CORES, options

LONG_S = 200.0
"""Nothing takes as long, however busy the machine is: what has not come by then never will."""
TIMING = TimingSettings(1, 3, 0.001, 5.0)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.001)


def make_setting(folder: Path) -> Setting:
    """A single convolution and its Relu, with reference outputs, in ``folder``."""
    model = chain(1)
    files = WorkFiles(folder)
    for path in (files.original, files.normalised):
        onnx.save(model, path)
    feeds = random_inputs(model, seed=1)
    outputs = dict(zip((o.name for o in model.graph.output), reference_outputs(model, feeds, 1), strict=True))
    write_references(files.reference, [(feeds, outputs)])
    write_references(files.edges, ())
    return Setting(str(folder), str(folder / "cache"), 2**30, Target(), Limits(tolerance=1e-3))


def cost_job(runs: int, min_seconds: float = 0.001) -> CostJob:
    """Time the convolution at least ``runs`` times and ``min_seconds`` seconds."""
    timing = TimingSettings(1, runs, min_seconds, max_seconds=600.0)
    return CostJob(Region(1, "onnxruntime", "default"), timing, 1e9, flush=False)


def checked(setting: Setting, backend: str) -> list[Any]:
    """The answers to jobs on convolution and Relu as a piece, as a whole model, and as the artifact of that."""
    if not get_backend(backend).probe().available:
        pytest.skip(get_backend(backend).probe().reason)
    artifact = str(Path(setting.work) / f"{backend}.collage")
    jobs: tuple[Job, ...] = (
        CostJob(Region(3, backend, "default"), TIMING, 1e9, flush=False),
        WholeJob(backend, "default", artifact, TIMING),
        OpenJob(artifact),
    )
    with Sandbox(setting, (), 2**33) as sandbox:
        return [sandbox.call(job, LONG_S) for job in jobs]


def answer_here(setting: Setting, job: Job) -> Any:
    """The answer to ``job`` of the loop of a worker process, in this one."""
    answers = io.StringIO()
    serve(io.StringIO(f"{to_json(Begin(setting, ()))}\n{to_json(job, Job)}\n"), answers)
    return from_json(answers.getvalue().splitlines()[-1], Message)


@dataclass(frozen=True)
class Answered(PoolConfig):
    """Settings of a pool whose processes answer each job by ``answer``, in this process."""

    answer: Callable[[Any], Any] = lambda job: Compiled()

    def process(self, cores: tuple[int, ...]) -> Any:
        return FakeProcess(FakeMachine(self.answer))


class Scripted:
    """A worker process that says ``lines``, and is ``pid`` to the system."""

    def __init__(self, pid: int, lines: Iterator[str]) -> None:
        self.pid, self.stdin, self.stdout, self._lines = pid, io.StringIO(), self, lines

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def close(self) -> None:
        """Its lines end by themselves."""

    def poll(self) -> None:
        """It runs."""

    def wait(self) -> int:
        return 0

    def kill(self) -> None:
        """It has no process."""


def answered(pid: int, clock: Callable[[], float], lines: Iterator[str]) -> Measured | Failure:
    """The answer to a job that may take 60 s by ``clock``, of a process that says ``lines``."""
    start: Any = lambda *_: Scripted(pid, lines)  # noqa: E731
    with Sandbox(setting_of(), (), 2**40, start, clock) as sandbox:
        return sandbox.call(cost_job(3), 60.0)


@dataclass
class Cluster:
    """A scheduler and workers as processes; each worker with lock files of its own, as on its own machine."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def dask_cluster(folder: Path, workers: int, allowed_failures: int = 3) -> Iterator[Cluster]:
    """Dask, which gives a call up when more than ``allowed_failures`` workers died of it."""
    from distributed import Client

    info = folder / "scheduler.json"
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures)}
    started = [_started("dask_scheduler", info, environment, "--port", "0", "--host", "127.0.0.1")]
    for index in range(workers):
        own = folder / str(index)
        own.mkdir(parents=True)
        environment["TMPDIR"] = str(own)
        arguments = ["--nthreads", "1", "--no-nanny", "--local-directory", str(own)]
        started.append(_started("dask_worker", info, environment, *arguments))
    try:
        while not info.exists():
            assert started[0].poll() is None
            time.sleep(0.1)
        with Client(scheduler_file=str(info)) as client:
            if workers:
                client.wait_for_workers(workers)
            address = client.scheduler.address
        yield Cluster(address, started[0], started[1:])
    finally:
        for process in started:
            process.kill()
            process.wait()


def _started(program: str, info: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(info), "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*command, *arguments], env=dict(environment), **quiet)


_SOON_GIVEN_UP = """
from functools import partial
from collage_evo.cli import main
from collage_evo.fitness import pool
pool.DaskWorkers = partial(pool.DaskWorkers, connect_s=3.0)
main()
"""
"""The command line, which waits less long for a scheduler that is gone."""


def cluster_run(folder: Path, executor: str, address: str, evaluations: int) -> subprocess.Popen[str]:
    """The command ``run`` on ``tiny.onnx`` in ``folder``, which measures on a cluster."""
    settings = {
        **QUICK_ALL_CORES, "fitness.executor": executor, "fitness.address": address, "fitness.margin": 1000,
        "search.evaluations": evaluations, "search.seconds": 90, "search.ga.patience": 0,
        "final.speeds": "searched",
    }  # fmt: skip
    program = [sys.executable, "-c", _SOON_GIVEN_UP, "run", "tiny.onnx", "--out", "run", *options(settings)]
    return subprocess.Popen(program, cwd=folder, stderr=subprocess.PIPE, text=True)
