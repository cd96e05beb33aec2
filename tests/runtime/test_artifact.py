"""The artifact on disk: what was written comes back; what was tampered with, or made elsewhere, is refused."""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage_evo
from collage_evo.errors import CollageError, InputError, OtherProcessor, UnavailableError
from collage_evo.hardware import slots
from collage_evo.hardware.cgroup import Limit
from collage_evo.hardware.processor import this_machine
from collage_evo.runtime.artifact import LINKED_BYTES, MANIFEST, Profile, read_artifact, write_artifact
from tests.runtime.helpers import TARGET, alternating
from tests.support.models import chain

X = np.ones((1, 4, 8, 8), np.float32)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    directory = tmp_path / "a.collage"
    program = alternating(chain(2), tmp_path / "pieces", ("onnxruntime", "openvino"))
    write_artifact(directory, [Profile(program, {"note": "a test"})], TARGET)
    return directory


def change(directory: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    edit(manifest)
    (directory / MANIFEST).write_text(json.dumps(manifest))


def test_what_was_written_comes_back(artifact: Path) -> None:
    found = read_artifact(artifact)
    assert [(p.backend, p.inputs) for p in found.program.pieces][:2] == [
        ("onnxruntime", ("x",)),
        ("openvino", found.program.pieces[0].outputs),
    ]
    assert (found.target, found.target.digest, found.target.records) == (TARGET, TARGET.digest, "")
    assert found.profiles[0].info == {"note": "a test"}
    moved = shutil.copytree(artifact, artifact.parent / "elsewhere.collage")
    with collage_evo.load(artifact) as once, collage_evo.load(moved) as twice:
        np.testing.assert_array_equal(once.run(None, {"x": X})[0], twice.run(None, {"x": X})[0])


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """An artifact whose convolution has more than a MiB of weights."""
    program = alternating(chain(1, channels=176), tmp_path / "pieces", ("onnxruntime",))
    write_artifact(tmp_path / "large.collage", [Profile(program)], TARGET)
    return tmp_path / "large.collage"


@pytest.mark.parametrize("links", [True, False])
def test_large_files_are_those_of_the_pieces_where_links_can_be_made(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *names: (_ for _ in ()).throw(OSError("no links here")))
    copy = tmp_path / "copy.collage"
    write_artifact(copy, read_artifact(large).profiles, TARGET)
    (weights,) = (path for path in region_files(copy) if path.stat().st_size >= LINKED_BYTES)
    assert weights.samefile(large / weights.relative_to(copy)) == links
    shutil.rmtree(large)
    with collage_evo.load(copy) as session:
        assert session.run(None, {"x": np.ones((1, 176, 8, 8), np.float32)})


def test_who_writes_into_a_shared_file_is_refused_everywhere(large: Path, tmp_path: Path) -> None:
    artifact = large
    write_artifact(tmp_path / "copy.collage", read_artifact(artifact).profiles, TARGET)
    with max((tmp_path / "copy.collage").rglob("*.onnx"), key=lambda path: path.stat().st_size).open("r+b") as file:
        file.write(b"edited")
    for directory in (artifact, tmp_path / "copy.collage"):
        with pytest.raises(InputError, match="was changed"):
            read_artifact(directory)
    write_artifact(artifact, [Profile(alternating(chain(2), tmp_path / "more", ("onnxruntime",)))], TARGET)
    assert read_artifact(artifact)


def test_writing_over_one_replaces_it_and_nothing_beside_it(artifact: Path, tmp_path: Path) -> None:
    own = [tmp_path / f"a.collage.{name}" for name in ("before", "tmp")]
    for directory in own:
        directory.mkdir()
        (directory / "thesis.txt").write_text("years of work")
    write_artifact(artifact, [Profile(alternating(chain(1), tmp_path / "pieces", ("onnxruntime",)))], TARGET)
    assert len(read_artifact(artifact).program.pieces) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"a.collage", "pieces", *(path.name for path in own)}
    assert all((directory / "thesis.txt").exists() for directory in own)


def test_one_that_is_replaced_is_whole_until_the_other_is(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = alternating(chain(1), tmp_path / "pieces", ("onnxruntime",))
    delete = shutil.rmtree

    def killed(directory: Path, *args: object, **options: object) -> None:
        if directory.exists():
            delete(next(iter(path for path in directory.iterdir() if path.is_dir())))
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        write_artifact(artifact, [Profile(program)], TARGET)
    assert len(read_artifact(artifact).program.pieces) == 2


def region_files(directory: Path) -> list[Path]:
    return [p for p in sorted(directory.rglob("*")) if p.is_file() and p.name != MANIFEST]


def first_region(manifest: Any) -> Any:
    return manifest["profiles"][0]["regions"][0]


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "objects as data": lambda m: m["profiles"][0]["tensors"]["x"].update(dtype="object"),
    "a negative size": lambda m: m["profiles"][0]["tensors"]["x"].update(shape=[1, -4, 8, 8]),
    "a size that is no number": lambda m: m["profiles"][0]["tensors"]["x"].update(shape=["4"]),
    "an unknown tensor": lambda m: first_region(m).update(inputs=["nothing"]),
    "no profiles": lambda m: m.update(profiles=[]),
    "profiles of another kind": lambda m: m.update(profiles=3),
    "no regions": lambda m: m["profiles"][0].pop("regions"),
    "regions of another kind": lambda m: m["profiles"][0].update(regions=3),
    "metadata of another kind": lambda m: m.update(model=[1]),
    "no threads": lambda m: m["target"].pop("threads"),
    "regions none at all": lambda m: m["profiles"][0].update(regions=[]),
    "a region that makes nothing": lambda m: m["profiles"][0]["regions"][-1].update(outputs=[]),
    "the regions in another order": lambda m: m["profiles"][0]["regions"].reverse(),
    "inputs and outputs swapped": lambda m: m["profiles"][0].update(inputs=["y"], outputs=["x"]),
    "a region's inputs and outputs swapped": lambda m: first_region(m).update(
        inputs=first_region(m)["outputs"], outputs=["x"]
    ),
    "a tensor made twice": lambda m: m["profiles"][0]["regions"][1].update(outputs=["x"]),
    "a huge tensor": lambda m: m["profiles"][0]["tensors"]["x"].update(shape=[2**50]),
    "a tensor of many axes": lambda m: m["profiles"][0]["tensors"]["x"].update(shape=[1] * 99),
    "another type of the same size": lambda m: m["profiles"][0]["tensors"]["x"].update(dtype="int32"),
    "another shape of the same size": lambda m: m["profiles"][0]["tensors"]["x"].update(shape=[1, 8, 4, 8]),
    "an open shape": lambda m: m["profiles"][0]["tensors"]["x"].update(shape=[1, -1, 8, 8]),
    "a region in another's directory": lambda m: first_region(m).update(
        directory=m["profiles"][0]["regions"][2]["directory"]
    ),
    "another tensor of the same type": lambda m: m["profiles"][0]["regions"][1].update(inputs=["x"]),
    "a region of no directory": lambda m: first_region(m).update(directory="."),
    "a region of another backend": lambda m: first_region(m).update(
        {key: m["profiles"][0]["regions"][1][key] for key in ("backend", "backend_version")}
    ),
    "a million threads": lambda m: m["target"].update(threads=10**6),
    "less than one thread": lambda m: m["target"].update(threads=0),
    "threads that are no number": lambda m: m["target"].update(threads=True),
    "no core": lambda m: m["target"].update(cores=[-1]),
    "lines in a name": lambda m: m["profiles"][0].update(outputs=["a\nb"]),
    "inputs of another model": lambda m: m["model"]["inputs"][0].update(name="z"),
    "an unknown backend": lambda m: first_region(m).update(backend="os.system"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_manifest_is_refused_in_a_line(artifact: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    change(artifact, damage)
    with pytest.raises(CollageError) as refused:
        collage_evo.load(artifact)
    assert "\n" not in str(refused.value)


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"!")


def link_outside(path: Path) -> None:
    path.rename(path.parents[3] / "outside")
    path.symlink_to(path.parents[3] / "outside")


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever


def placed_at(place: str) -> Callable[[Path], object]:
    return lambda a: change(a, lambda m: first_region(m).update(directory=place))


def schema(number: Any) -> tuple[Callable[[Path], object], str]:
    told = f"has schema {number}, this version reads 4: use the version that made it"
    return lambda a: change(a, lambda m: m.update(schema=number)), told


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (shutil.rmtree, "no artifact at"),
    "no manifest": (lambda a: (a / MANIFEST).unlink(), r"holds no manifest\.json"),
    "changed file": (lambda a: append(region_files(a)[0]), "was changed"),
    "missing file": (lambda a: region_files(a)[0].unlink(), "lacks profiles/"),
    "unlisted file": (
        lambda a: (a / "profiles" / "extra.so").write_bytes(b""), r"extra\.so, which its manifest does not list"
    ),
    "linked file": (lambda a: link_outside(region_files(a)[0]), "is a link"),
    "linked folder": (lambda a: (a / "profiles" / "more").symlink_to("/etc"), r"profiles/more in .* is a link"),
    "pipe": (lambda a: become_a_pipe(a / MANIFEST), "no plain file"),
    **{place: (placed_at(place), "outside the artifact") for place in ("../out", "/etc", "profiles/../../out")},
    **{repr(text): (lambda a, text=text: (a / MANIFEST).write_text(text), r"damaged|lacks")
       for text in ("", "[]", "{", '{"schema": 4}')},
    **{f"schema {number!r}": schema(number) for number in (3, 5, True, "4")},
    "another model": (
        lambda a: change(a, lambda m: m.update(fallback={**m["profiles"][0], "outputs": ["x"]})), "not of one model"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tamper", "message"), TAMPERED.values(), ids=TAMPERED)
def test_a_changed_artifact_is_refused(artifact: Path, tamper: Callable[[Path], object], message: str) -> None:
    tamper(artifact)
    with pytest.raises(InputError, match=message):
        collage_evo.load(artifact)


def test_another_version_or_kind_of_machine_is_refused(artifact: Path) -> None:
    manifest = (artifact / MANIFEST).read_text()
    change(artifact, lambda m: first_region(m).update(backend_version="0.1"))
    with pytest.raises(UnavailableError, match=r"made with onnxruntime 0\.1, here is .*: install that version"):
        collage_evo.load(artifact)
    (artifact / MANIFEST).write_text(manifest)
    change(artifact, lambda m: m["machine"].update(features=["avx9000"]))
    with pytest.raises(UnavailableError, match="a CPU with avx9000, which this one lacks"):
        collage_evo.load(artifact)
    change(artifact, lambda m: m["machine"].update(architecture="vax"))
    with pytest.raises(UnavailableError, match=f"this machine is {this_machine().architecture}"):
        collage_evo.load(artifact)


def test_equal_files_are_one_on_disk(tmp_path: Path) -> None:
    program = alternating(chain(1), tmp_path / "pieces", ("onnxruntime",))
    directory = tmp_path / "a.collage"
    write_artifact(directory, [Profile(program), Profile(program)], TARGET)
    first, second = (region_files(directory / "profiles" / index) for index in "01")
    assert len(first) == 2 * len(program.pieces)  # the model, and what it was built for
    assert all(a.samefile(b) for a, b in zip(first, second, strict=True))
    copied = tmp_path / "copied.collage"
    shutil.copytree(directory, copied)  # without what the file system knows of equal files
    assert len(read_artifact(copied).profiles) == 2


def forge_border(directory: Path, index: int, **border: Any) -> None:
    """Let a piece, and the manifest with it, say that it takes or gives something else."""
    place = directory / "profiles/0" / f"{index:03d}_{'openvino' if index % 2 else 'onnxruntime'}" / "border.json"
    text = json.dumps({**json.loads(place.read_text()), **border})
    place.unlink()  # other pieces of the same border share the file
    place.write_text(text)
    name, digest = place.relative_to(directory).as_posix(), hashlib.sha256(text.encode()).hexdigest()
    change(directory, lambda m: (m["files"].update({name: digest}), m["sizes"].update({name: len(text)})))


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", [1, 4, 8, 16]), ("float32", [1, 4, 64]), ("int32", [1, 4, 8, 8])]
)
@pytest.mark.parametrize("index", [0, 3])
def test_a_library_is_asked_what_its_piece_takes(artifact: Path, index: int, dtype: str, shape: list[int]) -> None:
    """The first piece, of ONNX Runtime, reads x; the last, of OpenVINO, gives y."""
    side, name = ("outputs", "y") if index else ("inputs", "x")
    forge_border(artifact, index, **{side: [[name, dtype, shape]]})
    change(artifact, lambda m: m["profiles"][0]["tensors"][name].update(dtype=dtype, shape=shape))
    assert read_artifact(artifact).program.tensors[name].shape == tuple(shape)
    with pytest.raises(InputError, match=r"has float32.* where [xy] is"):
        collage_evo.load(artifact)


def test_a_piece_has_to_say_what_it_takes(artifact: Path) -> None:
    for path in artifact.rglob("border.json"):
        path.unlink()
    without = {name: "border.json" not in name for name in json.loads((artifact / MANIFEST).read_text())["files"]}
    change(artifact, lambda m: m.update(files={k: v for k, v in m["files"].items() if without[k]}))
    with pytest.raises(InputError, match="does not say what it takes"):
        collage_evo.load(artifact)


def test_another_processor_is_warned_of_and_refused_where_that_was_asked_for(artifact: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherProcessor)
        collage_evo.load(artifact, strict=True).close()
    change(artifact, lambda manifest: manifest["machine"].update(features=[], cpu="an older one"))
    if not this_machine().other_than(read_artifact(artifact).target.machine):
        pytest.skip("this processor tells of no such instructions")
    with pytest.warns(OtherProcessor, match="an older one"):
        collage_evo.load(artifact).close()
    with pytest.raises(UnavailableError, match="may round otherwise"):
        collage_evo.load(artifact, strict=True)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_quota_of_fewer_processors_than_threads_is_warned_of(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(artifact, lambda manifest: manifest["target"].update(threads=2))
    quota = Limit(2.5, Path("cpu.max"))
    monkeypatch.setattr(slots, "cpu_quota", lambda _: quota)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherProcessor)
        collage_evo.load(artifact).close()
    quota = Limit(1.5, Path("cpu.max"))
    with pytest.warns(OtherProcessor, match=r"has 2 threads.*\(cpu\.max\) allows 1\.5 of \d"):
        collage_evo.load(artifact).close()
    with pytest.raises(UnavailableError, match="slower than measured"):
        collage_evo.load(artifact, strict=True)
