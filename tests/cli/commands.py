"""Runs the command line as a person does, and says what a refusal looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

Run = subprocess.CompletedProcess[str]


def collage(*args: object, cwd: Path, **environment: str) -> Run:
    """The command in the folder ``cwd``, with further variables of its environment."""
    command, own = [sys.executable, "-m", "collage_evo", *map(str, args)], {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=400)


def refused(done: Run, *words: str, code: int = 2) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert lines[-1].startswith("error: ")
    for word in words:
        assert word in lines[-1]


class Here(Protocol):
    def __call__(self, *args: object, cwd: Path) -> Run: ...
