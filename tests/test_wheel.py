"""The wheel, made of the source distribution, installs by its name and holds every file that the package reads; an
editable install is a folder that type checkers find."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from collage_evo import __version__

ROOT = Path(__file__).parents[1]
LEFT_OUT = (".*", "__pycache__", "*.pyc", "*.so", "*.egg-info", "build", "dist", "runs")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    command = (sys.executable, *command)
    settings = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, sources: Path, into: Path) -> None:
    """Build what ``kind`` says, as ``pip`` and ``build`` do, from ``sources`` into the folder ``into``."""
    run("-c", f"import setuptools.build_meta as backend; backend.build_{kind}({str(into)!r})", cwd=sources)


@dataclass(frozen=True)
class Release:
    """A copy of the repository, and its source distribution and the wheel made of that."""

    sources: Path
    index: Path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    place = tmp_path_factory.mktemp("release")
    made = Release(place / "sources", place / "index")
    shutil.copytree(ROOT, made.sources, ignore=shutil.ignore_patterns(*LEFT_OUT))
    build("sdist", made.sources, made.index)
    shutil.unpack_archive(next(made.index.glob("*.tar.gz")), place, filter="data")
    build("wheel", next(place.glob("collage_evo-*")), made.index)
    return made


def test_the_wheel_installs_by_name_and_has_all_files_of_the_package(release: Release, tmp_path: Path) -> None:
    site = tmp_path / "site"
    here = ("--no-index", "--find-links", release.index, "--target", site, "--no-deps", "--quiet")
    run("-m", "pip", "install", *here, "--disable-pip-version-check", "collage_evo", cwd=tmp_path)
    package = (release.sources / "collage_evo").rglob("*")
    wanted = {file.relative_to(release.sources) for file in package if file.is_file()}
    assert {file for file in wanted if not (site / file).is_file()} == set()
    where = "import collage_evo.api; print(collage_evo.api.__file__)"
    assert Path(run("-P", "-c", where, cwd=tmp_path, PYTHONPATH=str(site)).strip()).is_relative_to(site)
    command = site / "bin" / "collage-evo"
    assert run(command, "--version", cwd=tmp_path, PYTHONPATH=str(site)).strip() == __version__


@pytest.mark.skipif(not importlib.util.find_spec("twine"), reason="twine is part of the extra 'release'")
def test_an_index_would_take_both_distributions(release: Release) -> None:
    files = sorted(release.index.iterdir())
    assert len(files) == 2
    run("-m", "twine", "check", "--strict", *files, cwd=release.index)


def test_plug_ins_have_and_require_the_version_of_the_package() -> None:
    for path in ROOT.glob("plugins/*/pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        assert project["version"] == __version__
        assert {one for one in project["dependencies"] if "collage" in one} <= {f"collage-evo=={__version__}"}


def test_an_editable_install_is_a_path_as_type_checkers_run_no_import_hook(release: Release, tmp_path: Path) -> None:
    build("editable", release.sources, tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        (path,) = (name for name in wheel.namelist() if name.endswith(".pth"))
        assert Path(wheel.read(path).decode().strip()) == release.sources
        assert not [name for name in wheel.namelist() if name.endswith(".py")]
