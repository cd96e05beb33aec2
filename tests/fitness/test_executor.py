"""One search over a cluster: nothing is lost when a worker is killed, workers that disagree are left out."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.fitness import executor as executor_module
from collage_evo.fitness import pool as pool_module
from collage_evo.fitness.executor import Executor
from collage_evo.fitness.jobs import Answer, CostJob, Job, Setting
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.slots import acquire_slot, usable_cores
from collage_evo.fitness.worker import write_references
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.reference import reference_outputs
from collage_evo.runtime.timing import TimingSettings
from collage_evo.testing.models import chain

pytest.importorskip("distributed")
WORKERS = 3


def job(runs: int, min_seconds: float = 0.001) -> CostJob:
    return CostJob("1", "onnxruntime", "default", TimingSettings(1, runs, min_seconds, 5.0), 1e9, flush=False)


@dataclass
class Cluster:
    """A Dask scheduler and workers as processes; each worker with lock files of its own, as on its own machine."""

    address: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    info = folder / "scheduler.json"
    dask = [sys.executable, "-m"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = ["--port", "0", "--scheduler-file", str(info), "--no-dashboard", "--host", "127.0.0.1"]
    started = [subprocess.Popen([*dask, "distributed.cli.dask_scheduler", *command], **quiet)]
    for index in range(WORKERS):
        (folder / str(index)).mkdir()
        command = ["--scheduler-file", str(info), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        environment = {**os.environ, "TMPDIR": str(folder / str(index))}
        program = [*dask, "distributed.cli.dask_worker", *command, "--local-directory", str(folder / str(index))]
        started.append(subprocess.Popen(program, env=environment, **quiet))
    from distributed import Client

    while not info.exists():
        assert started[0].poll() is None
        time.sleep(0.1)
    with Client(scheduler_file=str(info)) as client:
        client.wait_for_workers(WORKERS)
        address = client.scheduler.address
    yield Cluster(address, started[1:])
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    folder = tmp_path_factory.mktemp("model")
    model = chain(1)
    onnx.save(model, folder / "model.onnx")
    feeds = random_inputs(model, seed=1)
    outputs = dict(zip((o.name for o in model.graph.output), reference_outputs(model, feeds, 1), strict=True))
    write_references(folder / "reference.npz", [(feeds, outputs)])
    paths = [str(folder / name) for name in ("model.onnx", "model.onnx", "reference.npz", "cache")]
    return Setting(*paths, cache_bytes=2**30, device="cpu", threads=1, tolerance=1e-3)


def test_a_killed_worker_loses_nothing(cluster: Cluster, setting: Setting) -> None:
    pool = MeasuringPool(setting, usable_cores()[:1], 2**32, 60.0, Executor("dask", cluster.address))
    jobs = [job(runs, min_seconds=0.1) for runs in range(5, 14)]
    answers = pool.map(jobs)
    first = next(answers)
    busy = next(w for w in cluster.workers if w.pid != int(first.worker.rpartition("/")[2]))
    busy.kill()
    got = [first, *answers]
    assert [answer.reason for answer in got] == [""] * len(jobs)
    assert all(len(answer.times_ms) >= wanted.timing.min_runs for answer, wanted in zip(got, jobs, strict=True))
    assert len({answer.worker for answer in got}) >= 2


def test_unreachable_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "CONNECT_S", "1s")
    with pytest.raises(UnavailableError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        Executor("dask", "tcp://127.0.0.1:9").workers()
    with pytest.raises(ConfigError, match=r"fitness\.address is missing"):
        Executor("dask")


class Board(pool_module._Held):
    """A worker of a pretended cluster that takes ``ms`` for every job, or never gets cores."""

    def __init__(self, label: str, ms: float, full: bool = False) -> None:
        super().__init__()
        self.label, self.ms, self.full = label, ms, full
        self.done: list[Job] = []

    @property
    def name(self) -> str:
        return self.label

    def _sandbox_of(self, pool: MeasuringPool) -> Any:
        return None if self.full else self

    def call(self, job: Job, timeout_s: float) -> Answer:
        self.done.append(job)
        return Answer((self.ms, self.ms * 1.02, self.ms * 0.98))


@dataclass(frozen=True)
class Pretended:
    """An executor whose jobs go to ``boards`` in turns, in this process."""

    boards: tuple[Board, ...]
    local: bool = False
    turn: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def parallel(self, slots: int) -> Iterator[Any]:
        def run(calls: Iterator[Any]) -> Iterator[Answer]:
            for _, (pool, wanted), _ in calls:
                yield self.boards[next(self.turn) % len(self.boards)].measure(pool, wanted)

        yield run

    def workers(self) -> int:
        return len(self.boards)


def pretended(monkeypatch: pytest.MonkeyPatch, boards: Sequence[Board], setting: Setting) -> MeasuringPool:
    monkeypatch.setattr(pool_module, "REFUSAL_REST_S", 0.0)
    return MeasuringPool(setting, (0,), 2**32, 60.0, Pretended(tuple(boards)))  # type: ignore[arg-type]


def test_a_worker_that_disagrees_is_reported_and_left_out(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    boards = [Board("a", 10.0), Board("b", 10.3), Board("slow", 14.0)]
    pool, took = pretended(monkeypatch, boards, setting).agreed(job(3), margin=0.1)
    assert took == {"a": 10.0, "b": 10.3, "slow": 14.0}
    with caplog.at_level(logging.WARNING):
        answers = list(pool.map([job(runs) for runs in range(4, 11)]))
    assert {answer.worker for answer in answers} == {"a", "b"}
    assert all(answer.reference_ms == took[answer.worker] for answer in answers)
    assert caplog.text.count("worker slow is left out: 14.00 ms for the reference placement, expected 10.30 ms") == 1
    assert [done.timing.min_runs for done in boards[2].done] == [3]  # nothing but the reference
    assert boards[0].done.count(job(3)) == 1  # measured once a worker


def test_a_worker_without_cores_hands_its_jobs_on(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    boards = [Board("a", 10.0), Board("full", 10.0, full=True)]
    pool = pretended(monkeypatch, boards, setting)
    assert [answer.worker for answer in pool.map([job(runs) for runs in range(4, 9)])] == ["a"] * 5


def test_a_cluster_in_which_nobody_may_measure_is_an_error(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = [Board("full", 10.0, full=True), Board("full too", 10.0, full=True)]
    with pytest.raises(UnavailableError, match="no timing slot is free on this machine"):
        list(pretended(monkeypatch, boards, setting).map([job(4)]))


def test_a_slot_is_waited_for_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held = acquire_slot(((0,),))
    assert held is not None
    assert acquire_slot(((0,),), wait_s=0.01, patience_s=0.05) is None
    held.release()
    assert acquire_slot(((0,),), patience_s=0.05) is not None
