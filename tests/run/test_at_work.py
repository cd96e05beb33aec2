"""One run at a time works in a directory; a second command in it is refused before it touches anything."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import onnx
import pytest

from collage_evo.config import parse_config
from collage_evo.errors import InputError
from collage_evo.run.at_work import at_work
from collage_evo.run.directory import start_run
from tests.cli.commands import collage
from tests.support.models import chain
from tests.support.quick import QUICK, nested, options
from tests.support.typed import not_none

HOLDS = """
import sys
from pathlib import Path
from collage_evo.run.at_work import at_work
with at_work(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_thread_may_enter_again_and_another_may_not(tmp_path: Path) -> None:
    errors: list[InputError] = []

    def other() -> None:
        try:
            with at_work(tmp_path):
                pass
        except InputError as error:
            errors.append(error)

    with at_work(tmp_path), at_work(tmp_path / "." / ""):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with at_work(tmp_path / "another"):
            pass
        assert not (tmp_path / "another").exists(), "it was made for the lock"
    with at_work(tmp_path):
        pass
    (error,) = errors
    assert "a run is at work in" in str(error)


@pytest.mark.parametrize("how", ["--overwrite", "--resume"])
def test_beside_a_run_at_work_nothing_is_removed_and_nothing_goes_on(tmp_path: Path, how: str) -> None:
    elsewhere = {**os.environ, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}  # as in another container
    onnx.save(chain(1), tmp_path / "tiny.onnx")
    config = parse_config(nested({**QUICK, "model.source": str(tmp_path / "tiny.onnx")}), (), "test")
    start_run(tmp_path / "run", config)
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env=elsewhere) as holder:
        assert holder.stdin is not None
        assert not_none(holder.stdout).readline() == "held\n"
        before = sorted(tmp_path.rglob("*"))
        done = collage("run", "tiny.onnx", "--out", "run", how, *options(QUICK), cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert f"a run is at work in {tmp_path / 'run'} (process {holder.pid})" in done.stderr
        assert sorted(tmp_path.rglob("*")) == before
        holder.kill()
    start_run(tmp_path / "run", config, overwrite=True)
