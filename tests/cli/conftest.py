"""A command that runs in the process of the test."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from collage_evo.cli import main
from tests.cli.commands import Here, Run


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """Runs a command in this process: starting a Python takes longer than all that is done until it is refused."""

    def run(*args: object, cwd: Path) -> Run:
        monkeypatch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in args])
        return Run(args, cast(int, ended.value.code), *capfd.readouterr())

    return run
