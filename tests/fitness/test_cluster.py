"""One search over a cluster: nothing is lost when a worker is killed, workers that disagree are left out."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.fitness import cluster as dask
from collage_evo.fitness.cluster import ClusterWorker, DaskWorkers
from collage_evo.fitness.jobs import Job, LeftOut, Measured, Reply, Setting
from collage_evo.fitness.pool import WorkerPool, workers_of
from collage_evo.fitness.worker_slot import Call, Over, PoolConfig, WorkerSlot
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.private import SHARED
from collage_evo.hardware.slots import acquire_slot, usable_cores
from tests.fitness.helpers import Cluster, cluster_run, dask_cluster, make_setting
from tests.fitness.helpers import cost_job as job
from tests.support.models import tiny_convnet
from tests.support.typed import not_none

pytest.importorskip("distributed")
WORKERS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with dask_cluster(tmp_path_factory.mktemp("cluster"), WORKERS) as started:
        yield started


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return make_setting(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(cluster: Cluster, setting: Setting) -> None:
    pool = WorkerPool(PoolConfig(setting, usable_cores()[:1], 2**32, 60.0), DaskWorkers(cluster.address))
    jobs = [job(runs, min_seconds=0.1) for runs in range(5, 14)]
    answers = pool.map(jobs)
    first = next(answers)
    busy = next(w for w in cluster.workers if w.pid != int(first.worker.rpartition("/")[2]))
    busy.kill()
    got = [first, *answers]
    assert not [reply.answer for reply in got if isinstance(reply.answer, Failure)]
    assert all(len(reply.answer.times_ms) >= wanted.timing.min_runs for reply, wanted in zip(got, jobs, strict=True))
    assert len({answer.worker for answer in got}) >= 2


@pytest.mark.slow
def test_a_job_that_no_worker_survives_is_unfit_and_a_scheduler_that_is_gone_an_error(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(*_: Any) -> Reply[Any]:
        os._exit(1)

    with dask_cluster(tmp_path, 2, allowed_failures=0) as cluster:
        workers = DaskWorkers(cluster.address, connect_s=2.0)
        pool = WorkerPool(PoolConfig(setting, usable_cores()[:1], 2**32, 60.0), workers)
        with monkeypatch.context() as patch:
            patch.setattr(dask, "measure_on_worker", deadly)
            assert list(pool.map([job(5)])) == [Reply(Failure(Fault.WORKERS_DIED, "workers that tried: 1"))]
        # Two threads submit them, so that a long one may come first.
        answers = pool.map([job(5), *(job(runs, min_seconds=3.0) for runs in range(6, 10))])
        assert next(answers).answer.times_ms
        cluster.scheduler.kill()
        with pytest.raises(UnavailableError, match=r"no Dask scheduler answers at .*interrupted run with: resume"):
            list(answers)


@pytest.mark.slow
def test_a_run_whose_scheduler_is_killed_ends_with_one_line_and_goes_on_with_another(tmp_path: Path) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    with dask_cluster(tmp_path / "first", 1) as cluster:
        run = cluster_run(tmp_path, "dask", cluster.address, evaluations=500)
        while not (tmp_path / "run" / "checkpoint.json").exists():
            assert run.poll() is None, run.stderr and run.stderr.read()
            time.sleep(0.05)
        cluster.scheduler.kill()
        errors = run.communicate()[1].splitlines()
    assert run.returncode == 3
    assert [line[:30] for line in errors if "Dask" in line] == ["error: no Dask scheduler answe"]
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("evaluations: 500", "evaluations: 10"))
    with dask_cluster(tmp_path / "second", 1) as cluster:
        command = ["-m", "collage_evo", "resume", "run", "-s", f"fitness.address={cluster.address}"]
        resumed = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on with the search" in resumed.stderr


def test_a_cluster_without_workers_is_an_error(tmp_path: Path) -> None:
    with dask_cluster(tmp_path, 0) as cluster, pytest.raises(UnavailableError, match="has no workers: start 'dask"):
        DaskWorkers(cluster.address).count()


def test_code_that_leaves_this_machine_without_tls_is_warned_of() -> None:
    for address in ("tcp://10.0.0.1:8786", "node:8786", "tcp://[2001:db8::1]:1"):
        assert re.fullmatch(".* may run code .*", DaskWorkers(address).warning), address
    for address in ("tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:8786", "tls://10.0.0.1:8786"):
        assert not DaskWorkers(address).warning
    assert not workers_of("local", "").warning


def test_unreachable_cluster_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        DaskWorkers("tcp://127.0.0.1:9", connect_s=1.0).count()
    with pytest.raises(ConfigError, match=r"fitness\.address is missing"):
        workers_of("dask", "")


class Board(WorkerSlot):
    """A slot of a pretended cluster whose process takes ``ms`` for every job, or that never gets cores."""

    def __init__(self, label: str, ms: float, full: bool = False) -> None:
        super().__init__(rest_s=0.0)
        self.label, self.ms, self.full = label, ms, full
        self.done: list[Job] = []

    @property
    def name(self) -> str:
        return self.label

    def sandbox(self, config: PoolConfig) -> Any:
        return self.left_out("no timing slot is free on this machine") if self.full else self

    def call(self, job: Job, timeout_s: float) -> Measured:
        self.done.append(job)
        return Measured((self.ms, self.ms * 1.02, self.ms * 0.98), 0.0, 0.0)


@dataclass(frozen=True)
class Pretended(DaskWorkers):
    """A cluster whose workers are in this process and take turns."""

    turns: tuple[ClusterWorker, ...] = ()
    turn: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def connected(self, config: PoolConfig, over: Over) -> Iterator[tuple[Call, int]]:
        def call(job: Job) -> Reply[Any] | LeftOut:
            return self.turns[next(self.turn) % self.count()].measure(config, self.expected, job)

        yield call, 1

    def count(self) -> int:
        return len(self.turns)


def pretended(boards: Sequence[Board], setting: Setting) -> WorkerPool:
    return WorkerPool(PoolConfig(setting, (0,), 2**32, 60.0), Pretended("", turns=tuple(map(ClusterWorker, boards))))


def test_a_worker_that_disagrees_is_reported_and_left_out(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    boards = [Board("a", 10.0), Board("b", 10.3), Board("slow", 14.0)]
    pool, asked = pretended(boards, setting).agreed(job(3), margin=0.1)
    assert sorted(asked) == [("a", 10.0, True), ("b", 10.3, True), ("slow", 14.0, False)]
    took = {worker: latency_ms for worker, latency_ms, _ in asked}
    with caplog.at_level(logging.WARNING):
        answers = list(pool.map([job(runs) for runs in range(4, 11)]))
    assert {answer.worker for answer in answers} == {"a", "b"}
    assert all(answer.reference_ms == took[answer.worker] for answer in answers)
    assert caplog.text.count("worker slow is left out: 14.00 ms for the reference placement, expected 10.30 ms") == 1
    assert [done.timing.min_runs for done in boards[2].done] == [3]  # nothing but the reference
    assert boards[0].done.count(job(3)) == 1  # measured once a worker


def test_a_worker_without_cores_hands_its_jobs_on(setting: Setting) -> None:
    pool = pretended([Board("a", 10.0), Board("full", 10.0, full=True)], setting)
    assert [answer.worker for answer in pool.map([job(runs) for runs in range(4, 9)])] == ["a"] * 5


def test_a_cluster_in_which_nobody_may_measure_is_an_error(setting: Setting) -> None:
    boards = [Board("full", 10.0, full=True), Board("full too", 10.0, full=True)]
    with pytest.raises(UnavailableError, match="no timing slot is free on this machine"):
        list(pretended(boards, setting).map([job(4)]))


def test_a_slot_is_waited_for_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, str(tmp_path))
    held = not_none(acquire_slot(((0,),)))
    assert acquire_slot(((0,),), timeout_s=0.05) is None
    held.release()
    assert acquire_slot(((0,),), timeout_s=0.05) is not None


def test_a_process_whose_starter_has_gone_ends_even_if_that_was_before_it_could_ask() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    imports = "import time; from collage_evo.fitness.process import exit_with_parent"
    code = f"{imports}; print('imported', flush=True); exit_with_parent({gone.pid}); time.sleep(60)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "imported\n", "")
