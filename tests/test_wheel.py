"""The wheel installs by its name from an index of its own, and holds every file that the package reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_CODE = ("*.pyc", "__pycache__")


def run(*command: str | Path, cwd: Path) -> str:
    command = (sys.executable, *command)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_installs_by_name_and_has_all_files_of_the_package(tmp_path: Path) -> None:
    sources, index, site = tmp_path / "sources", tmp_path / "index", tmp_path / "site"
    sources.mkdir()
    shutil.copytree(ROOT / "collage_evo", sources / "collage_evo", ignore=shutil.ignore_patterns(*NO_CODE))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, sources / name)
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
    run("-m", "pip", "wheel", *quiet, "--no-build-isolation", "--wheel-dir", index, sources, cwd=tmp_path)
    here = ("--no-index", "--find-links", index, "--target", site)
    run("-m", "pip", "install", *quiet, *here, "collage-evo", cwd=tmp_path)
    wanted = {file.relative_to(sources) for file in (sources / "collage_evo").rglob("*") if file.is_file()}
    assert {file for file in wanted if not (site / file).is_file()} == set()
    where = "import collage_evo.api; print(collage_evo.api.__file__)"
    found = run("-P", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {where}", cwd=tmp_path)
    assert Path(found.strip()).is_relative_to(site)
