"""An artifact is timed on the cores that it was made on, or on as many others."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.hardware.slots import usable_cores
from collage_evo.runtime.artifact import Profile, write_artifact
from tests.runtime.helpers import TARGET, sums, whole


def timed(folder: Path, cores: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
    made = Profile(whole(sums(2), folder / "pieces"))
    write_artifact(folder / "a.collage", [made], replace(TARGET, cores=cores))
    command = [sys.executable, "-m", "collage_evo", "exec", str(folder / "a.collage")]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("core", [10**6, 10**20])
def test_an_artifact_that_names_cores_which_are_not_here_is_timed_on_others(tmp_path: Path, core: int) -> None:
    done = timed(tmp_path, (core,))
    assert done.returncode == 0, done.stderr


def test_an_artifact_of_more_cores_than_are_usable_is_not_timed(tmp_path: Path) -> None:
    count = len(usable_cores())
    done = timed(tmp_path, (10**6, *range(count)))
    assert done.returncode == 3
    assert f"was made on {count + 1} cores, and usable here are {count}: let this process use more" in done.stderr
    assert "Traceback" not in done.stderr
