"""pack, and a run for a lesser processor, as a person calls them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.errors import OtherProcessor
from collage_evo.hardware.levels import LEVELS
from collage_evo.hardware.processor import level
from collage_evo.report.finished import read_finished
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.package import PACKAGE
from collage_evo.runtime.program import Program
from tests.cli.commands import Here, collage, refused
from tests.runtime.helpers import CONVNET, sums, whole
from tests.support.models import tiny_convnet
from tests.support.packages import GREATER, HERE, LESSER, ended, package
from tests.support.quick import QUICK, options


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


@pytest.fixture(scope="module")
def program(cache: Path) -> Program:
    return whole(CONVNET, cache)


@pytest.fixture
def folder(tmp_path: Path, program: Program) -> Path:
    """Runs that ended here, on a lesser and on a greater processor."""
    for name, machine in (("here", HERE), ("lesser", LESSER), ("greater", GREATER)):
        ended(tmp_path / name, machine, program, program)
    return tmp_path


def test_a_package_says_what_it_holds_and_what_is_taken_here(folder: Path, here: Here) -> None:
    done = here("pack", "lesser", "here/best.collage", "--to", "m.collage", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "written: m.collage" in done.stdout
    assert "artifacts by themselves" in done.stdout
    shown = here("show", "m.collage", cwd=folder).stdout
    assert f"{LESSER.kind}: a lesser one, 1 thread(s), 2.85 times as fast as the fall-back" in shown
    assert f"load takes {HERE.kind} here" in shown
    assert "float32: the fall-back" in shown
    refused = here("show", "m.collage", "--picture", "front.svg", cwd=folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "is a package, without tables and picture" in refused.stderr
    assert f"variant {HERE.kind}: it was made" in here("inspect", "m.collage", cwd=folder).stdout
    assert len(json.loads(here("show", "m.collage", "--json", cwd=folder).stdout)["variants"]) == 2
    assert here("exec", "m.collage", cwd=folder).returncode == 0


def test_what_does_not_belong_together_is_refused(folder: Path, program: Program, cache: Path, here: Here) -> None:
    ended(folder / "other", LESSER, program, model={"name": "m", "sha256": "b"})
    ended(folder / "unknown", LESSER, program, model={})
    ended(folder / "sums", LESSER, whole(sums(3), cache))
    shutil.copytree(folder / "here", folder / "twin")
    shutil.copytree(folder / "here", folder / "damaged")
    with (folder / "damaged/best.collage/profiles/0/000_onnxruntime/model.onnx").open("ab") as file:
        file.write(b"x")
    package(folder, folder / "here")
    for others, words in {
        ("other",): ("here and other are of different models, whose hashes differ",),
        ("sums",): ("here and sums are of different models, with other inputs or outputs",),
        ("unknown",): ("unknown does not say what model it was made of",),
        ("lesser", "twin"): ("here and twin are for the same processor", HERE.kind),
        ("damaged",): ("model.onnx was changed",),
        ("nowhere",): ("no artifact at", "nowhere"),
        ("m.collage",): ("give its variants",),
    }.items():
        refused(here("pack", "here", *others, "--to", "n.collage", cwd=folder), *words)
        assert not (folder / "n.collage").exists()


def test_only_a_package_is_overwritten_and_only_on_request(folder: Path, here: Here) -> None:
    package(folder, folder / "here")
    before = (folder / "m.collage" / PACKAGE).read_text()
    refused(here("pack", "lesser", "--to", "m.collage", cwd=folder), "--overwrite")
    refused(here("pack", "lesser", "--to", "here", "--overwrite", cwd=folder), "is not a package")
    assert (folder / "m.collage" / PACKAGE).read_text() == before
    (folder / "web").mkdir()
    (folder / "web" / PACKAGE).write_text('{"name": "web", "version": "1.0.0"}')
    refused(here("pack", "lesser", "--to", "web", "--overwrite", cwd=folder), "web is not a package", "another --to")
    mine = folder / "m.collage" / HERE.kind / "profiles" / "notes.txt"
    mine.write_text("mine")
    refused(here("pack", "lesser", "--to", "m.collage", "--overwrite", cwd=folder), "notes.txt", "another --to")
    mine.unlink()
    others = [folder / f".m.collage.{name}" for name in ("new", "before")]
    for other in others:
        other.write_text("mine")
    inside = f"m.collage/{HERE.kind}"
    assert here("pack", "lesser", inside, "--to", "m.collage", "--overwrite", cwd=folder).returncode == 0
    assert len(json.loads((folder / "m.collage" / PACKAGE).read_text())["variants"]) == 3
    assert [other.read_text() for other in others] == ["mine", "mine"]
    with load_artifact(folder / "m.collage") as session:
        assert getattr(session.selected, "name", "") == HERE.kind


def test_an_export_of_a_package_is_one_of_its_variant_s_run(folder: Path, here: Here) -> None:
    package(folder, folder / "here", folder / "lesser")
    export = ("export", "m.collage", "--to", "a")
    refused(here(*export, "--variant", "z", cwd=folder), "no variant z", HERE.kind, "float32")
    refused(here("export", "here", "--to", "a", "--variant", "z", cwd=folder), "here is none")
    refused(here(*export, "--variant", "float32", cwd=folder), "is not here")
    refused(here(*export, cwd=folder), "the export needs", "here/work", "missing")
    shutil.rmtree(folder / "here")
    refused(here(*export, cwd=folder), f"the run that made {HERE.kind} of m.collage is not here")


def test_a_fall_back_takes_other_shapes_too(tmp_path: Path, cache: Path) -> None:
    run = ended(tmp_path / "run", GREATER, whole(sums(3), cache), whole(sums(3), cache))
    (tmp_path / "run/fallbacks").mkdir()
    ended(tmp_path / "open", HERE, whole(sums("rows"), cache))
    shutil.move(tmp_path / "open/best.collage", run / "fallbacks/onnxruntime.collage")
    with pytest.warns(OtherProcessor, match="float32"):
        session = load_artifact(package(tmp_path, run))
    with session:
        for rows in (3, 5):
            x = np.ones((rows, 4), np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x, "k": np.array([2])})[0], 2 * x)


QUALITY = """
import os
from pathlib import Path

def score(outputs, items):
    with (Path(__file__).parent / "asked.txt").open("a") as asked:
        asked.write(f"{os.getpid()} {os.environ.get('COLLAGE_EVO_PROCESSOR')}\\n")
    return 1.0
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(level()), reason="the tests are held to a level")
@pytest.mark.skipif(bool(HERE.lacks(LEVELS["avx512"])), reason="nothing to hold this processor to")
def test_a_run_for_a_lesser_processor_is_held_to_it_and_says_so(tmp_path: Path, here: Here) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    (tmp_path / "q.py").write_text(QUALITY)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.standard_normal((8, 1, 3, 16, 16)).astype(np.float32))
    quick = options({**QUICK, "accuracy.budget": 0.5, "accuracy.metric": "q.py:score", "data.source": "d.npz"})
    done = collage("run", "tiny.onnx", "--for", "avx2", "--out", "run", *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "confirm them on a processor of that kind" in done.stderr
    asked = [line.split() for line in (tmp_path / "asked.txt").read_text().splitlines()]
    assert {processor for _, processor in asked} == {"avx2"}
    assert len({process for process, _ in asked}) > 1, "measuring processes have asked too"
    found = read_artifact(tmp_path / "run/best.collage")
    assert found.target.machine.features == HERE.held_to("avx2").features
    assert found.measured_elsewhere
    assert read_finished(tmp_path / "run")[0].result.target["held"] == "avx2"
    assert "Not measured on a processor of that kind" in here("show", "run", cwd=tmp_path).stdout
    assert "not measured on such a processor" in here("inspect", "run", cwd=tmp_path).stdout
    done = collage("resume", "run", cwd=tmp_path)
    assert "nothing new was measured: the answer stays" in done.stderr, "it is held again"


def test_a_processor_that_this_one_is_not_is_refused(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    older = replace(HERE, features=HERE.features - LEVELS["avx512_bf16"])
    monkeypatch.setattr("collage_evo.cli.held.this_machine", lambda: older)
    done = here("run", "tiny.onnx", "--for", "avx512_bf16", cwd=tmp_path)
    refused(done, "--for avx512_bf16: this processor lacks avx2, avx512_bf16")
    assert not (tmp_path / "runs").exists()
