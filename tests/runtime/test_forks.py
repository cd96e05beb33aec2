"""In a forked process a session runs, or says at once that it cannot; nobody waits for threads that are not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.testing.contract import HEAVY

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.session import Session

def begin():
    found = read_artifact(Path(sys.argv[1]))
    return Session([found.program], found.target)

session, feeds = begin(), {"x": np.ones((1, 64, 56, 56), np.float32)}
expected = session.run(None, feeds)[0]
time.sleep(0.5)  # so that the libraries' threads are asleep
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(30)
for known in (lambda: session, begin):
    try:
        np.testing.assert_array_equal(known().run(None, feeds)[0], expected)
        print("ran")
    except Exception as error:
        print(error, flush=True)
if sys.argv[2] == "at once":
    os._exit(0)
"""
RAN = ["ran", "ran"]


def after_a_fork(folder: Path, backend: str, threads: int, end: str = "with all that Python does then") -> list[str]:
    """What a session from before the fork does in the new process, and one that is made there."""
    if not get_backend(backend).probe().available:
        pytest.skip(get_backend(backend).probe().reason)
    target, cache = Target("cpu", threads, ()), PieceCache(folder / "pieces", 2**30)
    program = Compiler(target, cache).whole(HEAVY["convolution"](), backend, "default")
    write_artifact(folder / "a.collage", [Profile(program)], target)
    command = [sys.executable, "-c", SCRIPT, str(folder / "a.collage"), end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("backend", "end"),
    [
        ("ncnn", "with all that Python does then"),
        ("tvm", "at once"),  # its clean-up at the end of a process waits for its threads (docs/reference/sessions.md)
    ],
)
def test_a_library_that_would_wait_for_its_threads_is_not_called(tmp_path: Path, backend: str, end: str) -> None:
    before, made_there = after_a_fork(tmp_path, backend, threads=2, end=end)
    assert before == "this session was loaded before its process was forked: fork first, then load the artifact"
    assert made_there.startswith(f"{backend} had threads before this process was forked")


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_other_libraries_run_on_and_the_process_ends(tmp_path: Path, backend: str) -> None:
    assert after_a_fork(tmp_path, backend, threads=2) == RAN


@pytest.mark.parametrize("backend", ["ncnn", "tvm"])
def test_on_one_thread_every_library_runs_on(tmp_path: Path, backend: str) -> None:
    assert after_a_fork(tmp_path, backend, threads=1) == RAN
