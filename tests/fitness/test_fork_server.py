"""Worker processes that a server forks: their ends, and the server's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collage_evo.fitness.fork_server import WorkerProcess, start_worker
from tests.support.typed import not_none


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[WorkerProcess]]:
    """Two workers that wait for their first line."""
    workers = [start_worker(str(tmp_path / name), 2, {}) for name in ("a", "b")]
    yield workers
    for worker in workers:
        worker.kill()
        worker.wait()


def server_of(worker: WorkerProcess) -> psutil.Process:
    parent = not_none(psutil.Process(worker.pid).parent())
    return parent


def test_workers_share_a_server_and_each_ends_alone(started: list[WorkerProcess]) -> None:
    first, second = started
    assert server_of(first) == server_of(second)
    assert os.getpgid(first.pid) == first.pid
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert second.poll() is None
    second.stdin.close()
    assert second.wait() == 1, "it got no first line"


def test_another_server_takes_the_place_of_one_that_was_killed(started: list[WorkerProcess], tmp_path: Path) -> None:
    server_of(started[0]).kill()
    assert [worker.wait() for worker in started] == [-signal.SIGKILL] * 2
    another = start_worker(str(tmp_path / "c"), 2, {})
    assert another.poll() is None
    another.kill()
    assert another.wait() == -signal.SIGKILL


def test_workers_that_start_in_another_environment_have_another_server(
    started: list[WorkerProcess], tmp_path: Path
) -> None:
    another = start_worker(str(tmp_path / "c"), 2, {"MALLOC_ARENA_MAX": "1"})
    assert server_of(another) != server_of(started[0])
    another.kill()
    another.wait()
    assert started[0].poll() is None, "its server stays while it has workers"


def test_workers_of_another_interpreter_have_its_server_and_those_of_this_one_keep_theirs(
    started: list[WorkerProcess], tmp_path: Path
) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nOTHER_PYTHON=1 exec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    others = [start_worker(str(tmp_path / name), 2, {}, str(tmp_path / "python")) for name in ("c", "d")]
    after = start_worker(str(tmp_path / "e"), 2, {})
    assert server_of(others[0]) == server_of(others[1]) != server_of(started[0]) == server_of(after)
    assert server_of(others[0]).environ()["OTHER_PYTHON"] == "1"
    for worker in (*others, after):
        worker.kill()
        worker.wait()


def test_a_worker_starts_in_the_directory_of_the_moment(
    started: list[WorkerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = start_worker(str(tmp_path / "c"), 2, {})
    assert server_of(worker) == server_of(started[0])
    until = time.monotonic() + 240
    while os.readlink(f"/proc/{worker.pid}/cwd") != str(tmp_path) and time.monotonic() < until:
        time.sleep(0.01)
    assert os.readlink(f"/proc/{worker.pid}/cwd") == str(tmp_path)
    worker.kill()
    worker.wait()


def test_a_server_without_workers_ends_after_a_while() -> None:
    program = """
import socket
from collage_evo.fitness import process
process.IDLE_S = 0.1
requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
process.fork_on_request(theirs)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
