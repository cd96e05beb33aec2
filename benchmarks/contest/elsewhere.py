"""Tools whose dependencies contradict this program's or each other's, as contestants.

A script in ``contest_tools/`` calls each tool, in the environment that ``--pythons`` has for it or in this one.
Model, data and answer are files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from contest.engines import ONNXRUNTIME, Served
from contest.question import Finder, Question
from contest.task import CALIBRATION

PACKAGES = {
    "olive": "olive-ai==0.13.0 onnxruntime requests",
    "quark": "amd-quark==0.13 'onnxruntime<=1.28' optuna torch==2.13.0",
}
"""What to install for each, of Microsoft (MIT) and AMD (MIT)."""
SCRIPTS = Path(__file__).parents[1] / "contest_tools"
NOT_INSTALLED = 3
"""A script's exit status where its tool is missing."""
OUTPUT = "said.txt"


def elsewhere(tool: str) -> Finder:
    """The model that ``tool`` makes, for ONNX Runtime."""

    def find(question: Question) -> Served:
        made = question.folder / "model.onnx"
        status = _run_tool(tool, question, _request(made, question))
        if status == NOT_INSTALLED:
            raise RuntimeError(f"not installed: {PACKAGES[tool]}")
        if not made.exists():
            lines = (question.folder / OUTPUT).read_text().strip()
            raise RuntimeError(lines.rpartition("\n")[-1] or f"ended with {status} and made no model")
        return Served(ONNXRUNTIME, str(made))

    return find


def _request(made: Path, question: Question) -> Path:
    """The question as a file."""
    task, path = question.task, question.folder / "asked.json"
    request = {
        "model": str(task.model.resolve()),
        "data": str(task.samples.resolve()),
        "inputs": task.inputs(),
        "calibration": CALIBRATION,
        "made": str(made.resolve()),
    }
    path.write_text(json.dumps(request, indent=1))
    return path


def _run_tool(tool: str, question: Question, request: Path) -> int:
    """The exit status of the tool's script, whose output goes to a file in the question's folder."""
    installed = question.pythons / tool / "bin" / "python"
    python = str(installed.absolute()) if installed.exists() else sys.executable
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # ours shadow its modules
    with (question.folder / OUTPUT).open("w") as log:
        return subprocess.run(
            [python, str(SCRIPTS / f"ask_{tool}.py"), str(request.resolve())],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=question.folder,
            env=clean,
        ).returncode
