"""Threads of pools: each on a core of its own where the process has them to itself, left alone elsewhere."""

import os
import subprocess
import sys

import pytest

from collage_evo.backends.base import Target
from collage_evo.hardware.cores import own_cores
from collage_evo.runtime.pools import from_first_core, settle_pools

SCRIPT = """
import os, sys
import numpy as np
from pathlib import Path
from collage_evo.backends.base import Target
from collage_evo.runtime.session import Session
from tests.support.models import chain
from tests.runtime import helpers
helpers.TARGET = Target("cpu", 2, ())
known = set(os.listdir("/proc/self/task"))
program = helpers.alternating(chain(2, channels=16), Path(sys.argv[1]), (sys.argv[2],))
with Session([program], helpers.TARGET) as session:
    session.run(None, {"x": np.ones((1, 16, 8, 8), np.float32)})
    workers = set(os.listdir("/proc/self/task")) - known
    print([sorted(os.sched_getaffinity(int(worker))) for worker in workers])
    print(sorted(os.sched_getaffinity(0)))
"""


pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
TWO = tuple(sorted(os.sched_getaffinity(0)))[:2]


def test_cores_belong_to_a_process_that_was_given_just_enough() -> None:
    os.sched_setaffinity(0, TWO)
    assert own_cores(2) == TWO
    assert own_cores(1) == own_cores(3) == ()


@pytest.mark.parametrize("backend", ["onnxruntime", "ncnn", "tvm"])
def test_workers_keep_off_the_callers_core(backend: str, tmp_path: os.PathLike[str]) -> None:
    first, second = TWO
    done = subprocess.run(
        ["taskset", "-c", f"{first},{second}", sys.executable, "-c", SCRIPT, str(tmp_path), backend],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    workers, caller = done.stdout.strip().splitlines()
    assert f"[{second}]" in workers
    assert f"[{first}]" not in workers
    assert caller == f"[{first}, {second}]"


@pytest.mark.parametrize(("core", "moves"), [(TWO[0], []), (TWO[-1], [TWO[:1], TWO])])
def test_the_caller_moves_to_its_core_only_from_another_one(
    core: int, moves: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[tuple[int, ...]] = []
    os.sched_setaffinity(0, TWO)
    calls = from_first_core((), 2)
    os.sched_setaffinity(0, {core})
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_setaffinity", lambda _, cores: moved.append(tuple(cores)))
        for call in calls:
            call()
    assert moved == moves


def test_libraries_that_share_cores_are_told_to_sleep_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "TVM_THREAD_POOL_SPIN_COUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    settle_pools(["ncnn"], Target("cpu", 2))
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("TVM_THREAD_POOL_SPIN_COUNT", "7")
    settle_pools(["ncnn", "tvm"], Target("cpu", 2))
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert int(os.environ["GOMP_SPINCOUNT"]) < 10_000
    assert os.environ["TVM_THREAD_POOL_SPIN_COUNT"] == "7"
