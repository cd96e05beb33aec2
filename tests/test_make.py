"""``make`` sets the environment up without a page of warnings, and stops with pip's own words where it fails."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
# Stands for python: "-m venv DIR" makes an environment whose pip warns a lot and fails where the test says so.
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip "*)
    echo "$*" >> pip-calls
    echo "WARNING: Location 'https://example.com/wheels' is ignored" >&2
    case "$*" in *{failing}*) echo "ERROR: no matching distribution" >&2; exit 1 ;; esac ;;
esac
"""


def set_up(folder: Path, failing: str) -> subprocess.CompletedProcess[str]:
    """``make`` of the environment in ``folder``, with a Python whose pip fails on arguments with ``failing``."""
    python = folder / "python"
    python.write_text(PYTHON.replace("{failing}", failing))
    python.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("plugins", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    command = ["make", ".venv/.ready", f"PYTHON={python}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


def test_pip_is_silent_where_all_goes_well(tmp_path: Path) -> None:
    done = set_up(tmp_path, failing="nothing-at-all")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    assert (tmp_path / ".venv" / ".ready").exists()
    assert len((tmp_path / "pip-calls").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("failing", "calls"), [("--upgrade", 1), ("cpu,dev", 2), ("lanes", 3), ("cuda", 4), ("pnnx", 5)]
)
def test_a_failure_of_pip_is_shown_and_stops(tmp_path: Path, failing: str, calls: int) -> None:
    done = set_up(tmp_path, failing)
    assert done.returncode != 0
    assert "ERROR: no matching distribution" in done.stderr
    assert not (tmp_path / ".venv" / ".ready").exists()
    assert len((tmp_path / "pip-calls").read_text().splitlines()) == calls
