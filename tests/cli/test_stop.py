"""A run that is stopped by Ctrl-C, terminated or killed says how it goes on, and goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.answer.answer import Proof
from collage_evo.config import parse_config
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.report.places import COMMAND
from collage_evo.run.directory import save_run
from collage_evo.runtime.artifact import load_artifact
from tests.cli.commands import collage, refused
from tests.support.faults import install_faulty
from tests.support.models import chain, tiny_convnet
from tests.support.quick import QUICK, options
from tests.support.typed import not_none

pytestmark = pytest.mark.slow

LONG = options({**QUICK, "search.seconds": 600, "search.evaluations": None, "search.ga.patience": 0})


def start_long_run(folder: Path, out: str) -> subprocess.Popen[str]:
    """A run whose search would take ten minutes, once its first checkpoint is there."""
    onnx.save(chain(6), folder / "long.onnx")  # far more placements than ten minutes are enough for
    command = [sys.executable, "-m", "collage_evo", "run", "long.onnx", "--out", out, *LONG]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    for _ in range(2000):
        if (folder / out / "checkpoint.json").exists():
            return process
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("no checkpoint within 200 s")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores Ctrl-C, and so does all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_with_130_and_kill_9_with_a_run_that_resumes(tmp_path: Path) -> None:
    process = start_long_run(tmp_path, "stopped")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    last = stderr.splitlines()[-1]
    assert last.startswith("stopped; the best so far is in stopped/best.collage: ")
    assert last.endswith(f"; continue it with: {COMMAND} resume stopped")
    command = [sys.executable, "-m", "collage_evo", "resume", "stopped"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert any("going on with the search" in line for line in not_none(process.stderr))
        process.kill()
    kept = json.loads((tmp_path / "stopped" / "checkpoint.json").read_text())["body"]["state"]
    config = tmp_path / "stopped" / "config.yaml"
    config.write_text(config.read_text().replace("seconds: 600.0", "seconds: 0.1"))
    done = collage("resume", "stopped", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["search"]["evaluations"] == len(kept["evaluated"])


MOMENTS = (
    "first answer after",
    "Timing each operator",
    "Timing placements",
    "Compiling the most promising",
    "Comparing the best",
)
SIGNALS = ((signal.SIGTERM, 143), (signal.SIGINT, 130))


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [(one, *SIGNALS[k % 2]) for k, one in enumerate(MOMENTS)],
)
def test_whenever_it_is_stopped_a_run_has_an_answer_that_is_right(
    tmp_path: Path, moment: str, number: signal.Signals, code: int
) -> None:
    model = tiny_convnet()
    onnx.save(model, tmp_path / "tiny.onnx")
    settings = {**QUICK, "backends.use": ["onnxruntime", "openvino"], "search.evaluations": 4}
    settings["policy.race_near"] = 100.0  # something is compiled for the race, however slow it was in the search
    command = [sys.executable, "-m", "collage_evo", "run", "tiny.onnx", "--out", "out", *options(settings)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        lines = iter(not_none(process.stderr))
        assert any(moment in line for line in lines)
        process.send_signal(number)
        *_, last = [moment, *lines]
    assert process.returncode == code
    assert last.startswith("stopped; ")
    assert "the best so far is in out/best.collage: " in last
    assert_right(tmp_path / "out" / "best.collage", model)


def assert_right(artifact: Path, model: onnx.ModelProto) -> None:
    feeds = random_inputs(model, seed=3)
    with load_artifact(artifact) as session:
        (made,) = session.run(None, feeds)
    np.testing.assert_allclose(made, reference_outputs(model, feeds)[0], rtol=1e-3, atol=1e-4)


def test_a_run_whose_time_is_over_ends_with_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain(2)
    onnx.save(model, tmp_path / "long.onnx")
    for name, value in install_faulty(tmp_path / "plugin").items():
        monkeypatch.setenv(name, value)
    hangs = options({**QUICK, "backends.use": ["onnxruntime", "faulty"], "costs.seconds": 600})
    done = collage("run", "long.onnx", "--out", "out", "--time", "20", "--json", *hangs, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["proof"] in tuple(Proof)
    assert result == json.loads((tmp_path / "out" / "result.json").read_text())
    assert (tmp_path / "out" / "report.html").exists()
    assert_right(tmp_path / "out" / "best.collage", model)


def test_a_run_whose_time_is_over_before_a_first_answer_says_so(tmp_path: Path) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    (tmp_path / "slow.py").write_text("import time\ndef samples():\n    time.sleep(600)\n")
    slow = ["--data", "slow.py:samples", "--time", "5", *options(QUICK)]
    refused(collage("run", "tiny.onnx", *slow, cwd=tmp_path), "before a first answer", "resume")


def test_a_run_that_is_terminated_before_an_answer_leaves_the_one_that_it_was_to_overwrite(tmp_path: Path) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    (tmp_path / "out").mkdir()
    save_run(tmp_path / "out", parse_config({"model": {"source": "tiny.onnx"}}, (), "test"), "run")
    (tmp_path / "out" / "result.json").write_text("a result")
    # In one long sleep, a signal between Python's last look for one and the sleep would wait for the end of it.
    slow_file = "import time\ndef samples():\n    print('now', flush=True)\n    while True: time.sleep(0.1)\n"
    (tmp_path / "slow.py").write_text(slow_file)
    slow = ["--overwrite", "--data", "slow.py:samples", *options(QUICK)]
    command = [sys.executable, "-m", "collage_evo", "run", "tiny.onnx", "--out", "out", *slow]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **pipes) as process:
        assert not_none(process.stdout).readline() == "now\n"
        process.terminate()
        _, stderr = process.communicate(timeout=240)
    assert process.returncode == 143
    assert stderr.splitlines()[-1] == "stopped; out holds the run from before"
    assert (tmp_path / "out" / "result.json").read_text() == "a result"


HANGING = """
import signal, threading, time
def samples():
    threading.Thread(target=time.sleep, args=(600,)).start()
    print("half of a line", end="")
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_no_thread_that_a_library_leaves_behind(tmp_path: Path) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    (tmp_path / "hanging.py").write_text(HANGING)
    data = ["--data", "hanging.py:samples", *options(QUICK)]
    command = [sys.executable, "-m", "collage_evo", "run", "tiny.onnx", *data]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (130, "half of a line")
    assert "stopped" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
