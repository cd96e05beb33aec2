"""Contestants whose packages contradict this program's or each other's: takes a question, gives the model of a tool.

Each tool is asked by a script in ``contest_tools/``, run by a Python of its own where ``--pythons`` has one and by
this one otherwise. The model and the data are files for it, and so is its answer. What a model loses, this one says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from contest.engines import ONNXRUNTIME, Served, open_onnxruntime
from contest.judge import Judge
from contest.question import Finder, Question
from contest.task import CALIBRATION

PACKAGES = {
    "olive": "olive-ai==0.13.0 onnxruntime requests",
    "quark": "amd-quark==0.13 'onnxruntime<=1.28' optuna torch==2.13.0",
    "neural_compressor": "onnx-neural-compressor==1.0 numpy==1.26 onnx==1.16.2 onnxruntime==1.19.2 protobuf==4.25 "
    "prettytable scipy==1.13 setuptools",
}
"""What to install for each, of Microsoft (MIT), AMD (MIT) and Intel (Apache-2.0). The last is from 2024, so is what
it works with, on Python 3.12 or older; what Intel releases as ``neural-compressor`` today takes no ONNX."""
SCRIPTS = Path(__file__).parents[1] / "contest_tools"
NOT_INSTALLED = 3
"""A script's exit status where its tool is missing."""
SAID = "said.txt"


def elsewhere(tool: str, way: str) -> Finder:
    """The model that ``tool`` makes in one of its ways, for ONNX Runtime."""

    def find(question: Question) -> Served:
        made = question.folder / "model.onnx"
        status = _ask(tool, question, _asked(way, made, question))
        if status == NOT_INSTALLED:
            raise RuntimeError(f"not installed: {PACKAGES[tool]}")
        if not made.exists():
            said = (question.folder / SAID).read_text().strip()
            raise RuntimeError(said.rpartition("\n")[-1] or f"ended with {status} and made nothing")
        return Served(ONNXRUNTIME, str(made))

    return find


def _asked(way: str, made: Path, question: Question) -> Path:
    """The question as a file; with what float32 scores on the given samples beside it."""
    task, right = question.task, question.folder / "right.npy"
    np.save(right, Judge(task, task.given).scores(open_onnxruntime(task.model, 0)))
    path = question.folder / "asked.json"
    told = {
        "way": way,
        "model": str(task.model.resolve()),
        "given": str(task.given.resolve()),
        "inputs": task.inputs(),
        "calibration": CALIBRATION,
        "transformer": task.transformer,
        "budget": question.budget,
        "made": str(made.resolve()),
        "judge": [sys.executable, "-m", "contest.worker", "lost", str(task.folder.resolve()), str(right.resolve())],
        "path": os.environ.get("PYTHONPATH", ""),
    }
    path.write_text(json.dumps(told, indent=1))
    return path


def _ask(tool: str, question: Question, asked: Path) -> int:
    """Run the tool's script in the question's folder, where what it says is kept too: its exit status."""
    own = question.pythons / tool / "bin" / "python"
    python = str(own.absolute()) if own.exists() else sys.executable
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # ours shadow its modules
    with (question.folder / SAID).open("w") as said:
        return subprocess.run(
            [python, str(SCRIPTS / f"ask_{tool}.py"), str(asked.resolve())],
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=question.folder,
            env=clean,
        ).returncode
