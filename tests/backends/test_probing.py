"""A backend of another package may exit, hang, crash or print: it is named, and does no harm to a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from collage_evo.backends.probing import probe_elsewhere
from collage_evo.backends.registry import GROUP
from tests.support.faults import declare

GOOD = """
from collage_evo.backends.base import Probe
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
print("text of a library")
class Theirs(OnnxRuntimeBackend):
    name = "theirs"
    extra = ""
    def probe(self):
        return Probe(True, "1.0")
"""
ODD = {
    "exit": ("import sys; sys.exit(0)", "ended its process with exit code 0"),
    "end": ("import os; os._exit(0)", "ended its process with exit code 0"),
    "crash": ("import os; os.abort()", "ended its process with exit code -6"),
    "hang": ("import time; time.sleep(600)", "gave no answer within 1 s"),
    "raise": ("1 / 0", "cannot be loaded: ZeroDivisionError"),
    "none": (GOOD.replace('Probe(True, "1.0")', "None"), "gave no Probe"),
    "odd": (GOOD.replace('Probe(True, "1.0")', 'Probe("yes", 1)'), "gave no Probe"),
    "good": (GOOD, ""),
}


def entry(folder: Path, name: str) -> EntryPoint:
    (folder / f"theirs_{name}.py").write_text(ODD[name][0])
    return EntryPoint(name, f"theirs_{name}:Theirs", GROUP)


def test_each_is_probed_once_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    entries = {name: entry(tmp_path, name) for name in ODD}
    found = probe_elsewhere({"hang": entries["hang"]}, timeout_s=1.0)
    found |= probe_elsewhere(entries, timeout_s=240.0)
    assert {name: probe.available for name, probe in found.items()} == {name: name == "good" for name in found}
    for name, (_, why) in ODD.items():
        assert why in found[name].reason
        assert name == "good" or f"backend {name!r} (theirs_{name}:Theirs)" in found[name].reason
    assert "theirs_good" not in sys.modules
    (tmp_path / "theirs_exit.py").write_text(GOOD)
    assert probe_elsewhere(entries) == found


def test_no_command_ends_by_one_or_mixes_its_output_with_its_own(tmp_path: Path) -> None:
    for name in ("exit", "good"):
        declare(tmp_path, GROUP, name, entry(tmp_path, name).value)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    command = [sys.executable, "-m", "collage_evo", "backends", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert "ended its process" in found["exit"]["reason"]
    assert (found["good"]["available"], found["good"]["version"]) == (True, "1.0")
    assert found["onnxruntime"]["available"]
