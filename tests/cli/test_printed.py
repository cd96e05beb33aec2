"""What commands print can be copied: it starts this very Python, and names files where they lie."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import collage_evo.export
from collage_evo import __version__
from collage_evo.cli.answers import export
from collage_evo.export import Exported
from collage_evo.modules import SCRIPT, shell_command, shell_python


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with this Python, under a name that a shell has to quote; nothing is found by name."""
    folder = tmp_path / "an environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return folder


def program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_outside_of_its_environment_python_goes_by_its_path(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = shlex.quote(str(environment / "python3"))
    assert (shell_python(), shell_command()) == (quoted, f"{quoted} -m collage_evo")
    other = environment.parent / "other"
    other.mkdir()
    program(other / "python")
    program(other / SCRIPT)
    monkeypatch.setenv("PATH", str(other))
    assert shell_command() == f"{quoted} -m collage_evo", "another environment's"


def test_what_is_found_by_name_goes_by_name(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(environment))
    program(environment / SCRIPT)
    assert shell_command() == SCRIPT
    program(environment / "python")
    assert shell_command() == SCRIPT, "another Python in the same folder"
    (environment / "python").unlink()
    (environment / "python").symlink_to("python3")
    assert (shell_python(), shell_command()) == ("python", "python -m collage_evo")


def test_a_shell_without_the_environment_runs_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    done = subprocess.run(f"{shell_command()} --version", shell=True, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.strip()) == (0, __version__), done.stderr


def test_the_check_of_each_exported_folder_is_named_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "my files"
    told = {"1x4": "x [1, 4]", "open": "x [?, 4]"}
    monkeypatch.setitem(
        collage_evo.export.FORMS, "plain", lambda run, to: Exported(str(to), told, dict.fromkeys(told, "equal"))
    )
    export(Path("run"), to=place)
    lines = capsys.readouterr().out.splitlines()
    expected = [f"    {shell_python()} {shlex.quote(str(place / name / 'check.py'))}" for name in told]
    assert [line for line in lines if "check.py" in line] == expected
    monkeypatch.setitem(
        collage_evo.export.FORMS, "plain", lambda run, to: Exported(str(to), {".": "x [1]"}, {".": "equal"})
    )
    export(Path("run"), to=place)
    assert f"    {shell_python()} {shlex.quote(str(place / 'check.py'))}" in capsys.readouterr().out.splitlines()
