"""An artifact is timed on the cores that it was made on."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.runtime.artifact import Profile, write_artifact
from tests.runtime.helpers import TARGET, sums, whole


@pytest.mark.parametrize("cores", [(10**6,), (0, 10**20)])
def test_an_artifact_that_names_cores_which_are_not_here_is_not_timed(tmp_path: Path, cores: tuple[int, ...]) -> None:
    made = Profile(whole(sums(2), tmp_path / "pieces"))
    write_artifact(tmp_path / "a.collage", [made], replace(TARGET, cores=cores))
    command = [sys.executable, "-m", "collage_evo", "exec", str(tmp_path / "a.collage")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert f"core {cores[-1]} is not usable here" in done.stderr
    assert "Traceback" not in done.stderr
