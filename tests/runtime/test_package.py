"""A package of several processors' artifacts: each processor takes its own, and what was tampered with is refused."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage_evo
from collage_evo.backends.base import Executable
from collage_evo.commands.compared import subjects
from collage_evo.commands.pack import FLOAT32
from collage_evo.errors import CannotLoad, InputError, OtherProcessor, UnavailableError
from collage_evo.hardware.levels import LEVELS, SWITCH
from collage_evo.hardware.processor import level
from collage_evo.runtime.artifact import MANIFEST, load_artifact, read_artifact
from collage_evo.runtime.manifest import BEST
from collage_evo.runtime.package import PACKAGE, read_package
from collage_evo.runtime.program import Program
from tests.runtime.helpers import CONVNET, assert_expected, image, sums, whole
from tests.support.models import chain
from tests.support.packages import GREATER, HERE, LESSER, ended, package
from tests.support.typed import not_none

Programs = tuple[Program, Program]


@pytest.fixture(scope="module")
def programs(cache: Path) -> Programs:
    """The model in OpenVINO, and in ONNX Runtime."""
    return whole(CONVNET, cache, "openvino"), whole(CONVNET, cache)


@pytest.fixture
def both(tmp_path: Path, programs: Programs) -> Path:
    """A package for this processor, and for one with fewer instructions, with a fall-back."""
    openvino, onnxruntime = programs
    here = ended(tmp_path / "here", HERE, openvino, onnxruntime)
    return package(tmp_path, ended(tmp_path / "lesser", LESSER, onnxruntime), here)


def selected(directory: Path) -> tuple[str, str]:
    with collage_evo.load(directory) as session:
        assert_expected(session.run(None, image(3))[0], 3)
        selected = not_none(session.selected)
        return selected.name, selected.reason


def test_a_processor_takes_what_was_made_for_one_like_it(both: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "collage_evo")
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherProcessor)
        assert selected(both) == (HERE.kind, "it was made for a processor like this one")
    assert f"selected {HERE.kind}" in caplog.text
    assert read_artifact(both).program.pieces[0].backend == "openvino"
    with collage_evo.load(both / HERE.kind) as session:
        assert session.selected is None, "a variant by its own path is an artifact like any other"


@pytest.mark.skipif(not {"bmi1", "bmi2"} <= HERE.features, reason="no two processors of this kind to tell apart")
def test_the_most_specific_is_taken_and_of_equals_the_fastest(tmp_path: Path, programs: Programs) -> None:
    without = [replace(HERE, features=HERE.features - {one}) for one in ("bmi1", "bmi2")]
    runs = [ended(tmp_path / f"run{number}", machine, programs[1]) for number, machine in enumerate((*without, HERE))]
    made = package(tmp_path, *runs)
    assert selected(made)[0] == read_package(made).variants[2].name
    shutil.rmtree(made)
    made = package(tmp_path, *runs[:2])
    for speedups in ((1.5, 2.0), (2.0, 1.5)):
        content = json.loads((made / PACKAGE).read_text())
        for one, speedup in zip(content["variants"].values(), speedups, strict=True):
            one["speedup"] = speedup
        (made / PACKAGE).write_text(json.dumps(content))
        assert selected(made)[0] == list(content["variants"])[speedups.index(2.0)]


def test_another_processor_takes_the_fall_back_and_is_told_so(tmp_path: Path, programs: Programs) -> None:
    openvino, onnxruntime = programs
    made = package(
        tmp_path,
        ended(tmp_path / "lesser", LESSER, openvino, onnxruntime),
        ended(tmp_path / "greater", GREATER, openvino),
    )
    with pytest.warns(OtherProcessor, match="runs in float32 in one library"):
        name, reason = selected(made)
    assert name == FLOAT32
    for words in ("avx9000, which this one lacks", "this processor has", "besides"):
        assert words in reason
    assert read_artifact(made).program.pieces[0].backend == "onnxruntime"
    with pytest.raises(UnavailableError, match="no variant was made for a processor like this one"):
        collage_evo.load(made, strict=True)
    with pytest.warns(OtherProcessor, match="a lesser one"), collage_evo.load(made / LESSER.kind):
        pass


def test_without_a_fall_back_it_takes_what_runs_and_warns(tmp_path: Path, programs: Programs) -> None:
    lesser = ended(tmp_path / "lesser", LESSER, programs[0])
    greater = ended(tmp_path / "greater", GREATER, programs[0])
    made = package(tmp_path, lesser, greater)
    with pytest.warns(OtherProcessor, match="a lesser one"):
        assert selected(made)[0] == LESSER.kind
    shutil.rmtree(made)
    with pytest.raises(UnavailableError, match=r"has no float32 fall-back, and no variant .*avx9000"):
        collage_evo.load(package(tmp_path, greater))


def test_times_of_a_held_processor_are_doubted_elsewhere(tmp_path: Path, programs: Programs) -> None:
    elsewhere = replace(HERE, cpu="another, held to avx2")
    made = package(tmp_path, ended(tmp_path / "held", elsewhere, programs[1], held="avx2"))
    with pytest.warns(OtherProcessor, match="its times were not measured on such a processor, but on another, held"):
        assert selected(made)[0] == "avx2"
    shutil.rmtree(made)
    made = package(tmp_path, ended(tmp_path / "same", HERE, programs[1], held="avx2"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherProcessor)
        assert selected(made)[0] == "avx2", "the processor that measured them, held as it was then"


@pytest.mark.parametrize(
    ("raised", "kind", "why"),
    [
        (RuntimeError("built for\nanother"), UnavailableError, "it was made on a lesser one; .* besides.*; run"),
        (MemoryError("bad_alloc"), CannotLoad, "run the search again"),
    ],
)
def test_what_a_library_refuses_of_another_processor_is_told_with_what_to_do(
    raised: Exception, kind: type[Exception], why: str, tmp_path: Path, programs: Programs
) -> None:
    def refuse(*piece: object) -> Executable:
        raise raised

    made = ended(tmp_path / "lesser", replace(LESSER, features=frozenset({min(HERE.features)})), programs[0])
    with pytest.warns(OtherProcessor), pytest.raises(kind, match=rf"^openvino cannot load a region \(.*\): {why}"):
        load_artifact(made, load=refuse)


LOAD = "import collage_evo, sys; s = collage_evo.load(sys.argv[1]); print(s.selected.name, s.get_providers()[0])"


@pytest.mark.skipif(bool(level()), reason="the tests are held to a level")
@pytest.mark.skipif(bool(HERE.lacks(LEVELS["avx512"])), reason="nothing to hold this processor to")
def test_each_of_two_processors_takes_its_own(tmp_path: Path, programs: Programs) -> None:
    openvino, onnxruntime = programs
    held = HERE.held_to("avx2")
    runs = ended(tmp_path / "full", HERE, openvino), ended(tmp_path / "held", held, onnxruntime, held="avx2")
    made = package(tmp_path, *runs)
    own = {"": [HERE.kind, "OpenVINOExecutionProvider"], "avx2": ["avx2", "CPUExecutionProvider"]}
    for processor, taken in own.items():
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LOAD, str(made)],
            env={**os.environ, SWITCH: processor},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == taken


MAKE = """if True:
    import sys
    from pathlib import Path
    from collage_evo.runtime.artifact import Profile, write_artifact
    from tests.runtime.helpers import CONVNET, TARGET, whole
    place = Path(sys.argv[1])
    write_artifact(place / "held.collage", [Profile(whole(CONVNET, place / "cache", "openvino"))], TARGET)
"""


@pytest.mark.skipif(bool(level() or HERE.lacks(LEVELS["avx512"])), reason="nothing to hold this processor to")
def test_openvino_refuses_what_it_compiled_for_fewer_instructions(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MAKE, str(tmp_path)], env={**os.environ, SWITCH: "avx2"}, check=True)
    said = f"openvino cannot load a region .*, held to avx2.*; start Python with {SWITCH}=avx2, or run the search on"
    with pytest.warns(OtherProcessor), pytest.raises(UnavailableError, match=said):
        collage_evo.load(tmp_path / "held.collage")


def change(directory: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((directory / PACKAGE).read_text())
    edit(content)
    (directory / PACKAGE).write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["../lesser/best.collage", "/etc", "..", ".", "", "a/b", f"{HERE.kind}/profiles"])
def test_a_variant_lies_in_the_package(both: Path, name: str) -> None:
    change(both, lambda content: content["variants"].update({name: content["variants"][HERE.kind]}))
    with pytest.raises(InputError, match=r"outside the package: do not use it"):
        collage_evo.load(both)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: (m / "more.txt").write_text("more"), r"holds more\.txt, which its package\.json does not list"),
        (
            lambda m: (m / HERE.kind).symlink_to((m / HERE.kind).rename(m.parent / "moved")),
            f"{HERE.kind} in .* is a link",
        ),
        (lambda m: shutil.rmtree(m / LESSER.kind), f"lacks the variant {LESSER.kind}: copy the package again"),
    ],
    ids=["a file more", "a link in place of a variant", "no variant for another processor"],
)
def test_a_package_of_other_files_is_refused(both: Path, change: Callable[[Path], object], said: str) -> None:
    change(both)
    with pytest.raises(InputError, match=said):
        collage_evo.load(both)


def test_an_artifact_that_the_package_does_not_list_is_not_taken_in_its_place(both: Path) -> None:
    shutil.copytree(both / LESSER.kind, both / BEST)
    with pytest.raises(InputError, match=r"holds best\.collage/.*, which its package\.json does not list"):
        collage_evo.load(both)
    with pytest.raises(InputError, match=r"package\.json does not list"):
        subjects(both, both / "any.onnx", None)


@pytest.mark.parametrize("place", [FLOAT32, LESSER.kind])
def test_variants_of_different_models_are_refused(both: Path, tmp_path: Path, cache: Path, place: str) -> None:
    program = whole(sums(3), cache) if place == FLOAT32 else read_artifact(both / place).program
    other = ended(tmp_path / "other", LESSER, program, model={"name": "m", "sha256": "b"}) / BEST
    shutil.rmtree(both / place)
    other.rename(both / place)
    digest = hashlib.sha256((both / place / MANIFEST).read_bytes()).hexdigest()
    change(both, lambda content: content["variants"][place].update(manifest=digest))
    with pytest.raises(InputError, match=f"holds .*{place}.*, of different models: do not use it"):
        collage_evo.load(both)


def test_a_log_line_has_no_character_that_a_terminal_obeys(both: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "collage_evo")
    odd = both.rename(both.with_name("m\x1b[2J\u202e.collage"))
    collage_evo.load(odd).close()
    assert "selected" in caplog.text
    assert not {"\x1b", "\u202e"} & {*caplog.text}
    change(odd, lambda content: content["variants"].update({"a\u202e": content["variants"].pop(LESSER.kind)}))
    with pytest.raises(InputError, match="is no text"):
        collage_evo.load(odd)


def test_a_changed_variant_is_refused(both: Path) -> None:
    manifest = both / HERE.kind / MANIFEST
    before = manifest.read_text()
    manifest.write_text(before.replace(HERE.cpu, "Another"))
    with pytest.raises(InputError, match=f"{HERE.kind}/manifest.json in .* was changed"):
        collage_evo.load(both)
    manifest.write_text(before)
    (path,) = (both / HERE.kind).rglob("*.blob")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputError, match="was changed"):
        collage_evo.load(both)


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.update(schema=9),
        lambda content: content.update(fallback="none"),
        lambda content: content.update(variants=[]),
        lambda content: content["variants"][HERE.kind].update(manifest=3),
        lambda content: content.pop("variants"),
        lambda content: content["variants"].update({"a\0b": content["variants"][HERE.kind]}),
    ],
)
def test_a_damaged_list_is_one_line(both: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    change(both, edit)
    with pytest.raises(InputError) as refused:
        collage_evo.load(both)
    assert len(str(refused.value).splitlines()) == 1


def test_a_package_shares_large_files_with_its_runs(tmp_path: Path) -> None:
    program = whole(chain(1, channels=176), tmp_path / "pieces")
    packed = package(tmp_path, run := ended(tmp_path / "here", HERE, program, program))
    for name, directory in ((HERE.kind, run / BEST), (FLOAT32, run / "baselines" / "onnxruntime.collage")):
        (file,) = (path for path in directory.rglob("*") if path.is_file() and path.stat().st_size > 2**20)
        assert file.samefile(packed / name / file.relative_to(directory))
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_variants_share_is_stored_once(both: Path) -> None:
    places = [both / name / "profiles/0/000_onnxruntime/model.onnx" for name in (LESSER.kind, FLOAT32)]
    assert places[0].stat().st_ino == places[1].stat().st_ino


@pytest.mark.filterwarnings("ignore::collage_evo.errors.OtherProcessor")
def test_an_answer_of_open_shapes_is_packed_with_its_fall_back(tmp_path: Path, cache: Path) -> None:
    program = whole(sums("rows"), cache)
    made = package(tmp_path, ended(tmp_path / "here", HERE, program, program))
    for place in (made, made / "float32"):
        with collage_evo.load(place) as session:
            for rows in (1, 7):
                feeds = {"x": np.ones((rows, 4), np.float32), "k": np.array([3])}
                assert session.run(None, feeds)[0].tolist() == [[3.0] * 4] * rows
