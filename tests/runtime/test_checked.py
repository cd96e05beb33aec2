"""What is loaded from an artifact is what was checked, however late that is, and whatever happens to its files."""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import collage_evo
from collage_evo.backends.base import Executable, Target
from collage_evo.backends.registry import get_backend
from collage_evo.digests import remembering
from collage_evo.errors import InputError
from collage_evo.models.builder import Builder
from collage_evo.runtime.artifact import Profile, read_artifact, write_artifact
from collage_evo.runtime.checked import check_file, load_unchanged
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import load_piece
from collage_evo.runtime.session import Session
from tests.runtime.helpers import TARGET, sums, whole
from tests.support.mapped import folder_in_memory, replace_unseen

CHANGED = "was changed since its artifact was opened: load the artifact again"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return deployed(tmp_path)


def deployed(folder: Path, scale: int = 1) -> Path:
    """An artifact for two rows, with a fallback; ``scale`` makes another model of it."""
    opened = sums("rows")
    opened.graph.node[0].op_type = "Relu" if scale == 1 else "Neg"
    write_artifact(
        folder / "a.collage",
        [Profile(whole(sums(2), folder / "pieces"))],
        TARGET,
        fallback=whole(opened, folder / "pieces"),
    )
    for path in (folder / "a.collage").rglob("*"):
        os.utime(path, (0, 0))  # what is written later has another time, however soon it comes
    return folder / "a.collage"


def rows_of(session: Session, n: int) -> np.ndarray:
    return np.asarray(session.run(None, {"x": np.ones((n, 4), np.float32), "k": [3]})[0])


def fall_back_file(artifact: Path) -> Path:
    return next(artifact.glob("fallback/*/model.onnx"))


def test_a_process_that_goes_elsewhere_still_finds_the_fall_back(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(artifact.parent)
    with collage_evo.load(artifact.name) as session:
        monkeypatch.chdir("/")
        assert rows_of(session, 5).shape == (5, 4)


def test_what_a_link_led_to_when_it_was_opened_is_what_runs(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    current = tmp_path / "current"
    current.symlink_to(artifact)
    with collage_evo.load(current) as session:
        current.unlink()
        current.symlink_to(deployed(tmp_path / "new", scale=-1))
        np.testing.assert_array_equal(rows_of(session, 5), 3)


def test_a_new_model_at_the_same_path_does_not_mix_with_the_old_one(artifact: Path) -> None:
    with collage_evo.load(artifact) as session:
        deployed(artifact.parent, scale=-1)
        with pytest.raises(InputError, match=CHANGED):
            rows_of(session, 5)
        np.testing.assert_array_equal(rows_of(session, 2), 3)
    with collage_evo.load(artifact) as session:
        np.testing.assert_array_equal(rows_of(session, 5), -3)


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"Relu", b"Sqrt"))


def test_a_swap_while_a_session_loads_is_seen(artifact: Path) -> None:
    def load(piece: Piece, program: Program, target: Target) -> Executable:
        rewrite(piece.directory / "model.onnx")
        return load_piece(piece, program, target)

    with pytest.raises(InputError, match=CHANGED):
        Session([read_artifact(artifact).program], TARGET, load=load)


class Loading:
    """A library that loads the file of a piece of an artifact; ``meanwhile`` happens to it the first ``times``."""

    def __init__(self, folder: Path, meanwhile: Callable[[Path], object], times: int = 1) -> None:
        self.root, self.piece = folder / "a.collage", folder / "a.collage" / "profiles" / "0"
        self.file, self.loads = self.piece / "model.onnx", 0
        self._meanwhile, self._times = meanwhile, times
        self.piece.mkdir(parents=True)
        self.file.write_bytes(b"Relu")

    def __call__(self) -> str:
        self.loads += 1
        if self.loads <= self._times:
            self._meanwhile(self.file)
        return "loaded"

    def result(self) -> str:
        return load_unchanged([replace(check_file(self.file), root=self.root)], self)


def exchanged(level: int) -> Callable[[Path], object]:
    """What exchanges the file's directory, or one above it, for another, and puts it back."""

    def exchange(file: Path) -> None:
        place, away = file.parents[level], file.parents[3] / "away"
        shutil.copytree(place, file.parents[3] / "other")
        place.rename(away)
        (file.parents[3] / "other").rename(place)
        shutil.rmtree(place)
        away.rename(place)

    return exchange


def link(path: Path) -> None:
    os.link(path, path.parents[3] / os.urandom(4).hex())


def changed_unseen(path: Path) -> None:
    status = path.stat()
    rewrite(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("meanwhile", "times"),
    [(rewrite, 1), (Path.unlink, 1), (changed_unseen, 1), (link, 3), *((exchanged(level), 1) for level in range(3))],
)
def test_what_changes_between_hashing_and_loading_is_seen(
    tmp_path: Path, meanwhile: Callable[[Path], object], times: int
) -> None:
    with pytest.raises(InputError, match=CHANGED):
        Loading(tmp_path, meanwhile, times).result()


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_link_that_is_made_while_a_library_reads_the_file_has_it_loaded_again(tmp_path: Path, times: int) -> None:
    loading = Loading(tmp_path, link, times)
    assert loading.result() == "loaded"
    assert loading.loads == times + 1


def test_the_processes_of_a_run_load_once_however_many_links_are_made_meanwhile(tmp_path: Path) -> None:
    loading = Loading(tmp_path, link, times=3)
    with remembering(tmp_path / "digests"):
        assert loading.result() == "loaded"
    assert loading.loads == 1


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "ncnn", "tvm", "torch"])
@pytest.mark.parametrize("replaced", [True, False])
def test_who_loads_another_model_at_the_same_path_runs_it(tmp_path: Path, backend: str, replaced: bool) -> None:
    """Whether the files are replaced or written into; and who runs the first model goes on with it."""
    if not get_backend(backend).probe().available:
        pytest.skip(f"{backend} is not installed")

    def model(factor: float) -> onnx.ModelProto:
        b = Builder("scaled")
        return b.model(b.op("Mul", b.input("x", (1, 4)), b.const(np.full((1, 4), factor, np.float32)), output="y"))

    places = []
    for factor in (2.0, 3.0):
        places.append(tmp_path / str(factor) / "a.collage")
        places[-1].parent.mkdir()
        write_artifact(places[-1], [Profile(whole(model(factor), tmp_path / "pieces", backend))], TARGET)
    feeds, seen = {"x": np.ones((1, 4), np.float32)}, []
    with collage_evo.load(places[0]) as first:
        seen.append(first.run(None, feeds)[0][0, 0])
        if replaced:
            places[0].rename(tmp_path / "old")
            places[1].rename(places[0])
        else:
            for path in (path for path in places[0].rglob("*") if path.is_file()):
                path.write_bytes((places[1] / path.relative_to(places[0])).read_bytes())
        with collage_evo.load(places[0]) as second:
            seen += [second.run(None, feeds)[0][0, 0], first.run(None, feeds)[0][0, 0]]
    assert seen == [2.0, 3.0, 2.0]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_who_writes_into_large_weights_of_an_open_session_changes_nothing_there(tmp_path: Path, backend: str) -> None:
    b = Builder("table")
    table = b.const(np.full((4096, 4096), 2, np.float32))
    row = b.input("row", (1,), onnx.TensorProto.INT64)
    program = whole(b.model(b.op("Gather", table, row, output="y")), tmp_path / "pieces", backend)
    write_artifact(tmp_path / "a.collage", [Profile(program)], TARGET)
    with collage_evo.load(tmp_path / "a.collage") as session:
        for path in (tmp_path / "a.collage").rglob("*"):
            if path.is_file() and path.stat().st_size >= 2**26:
                with path.open("r+b") as file:
                    file.write(bytes(2**26))
        for row in (0, 4095):
            np.testing.assert_array_equal(session.run(None, {"row": np.array([row])})[0], np.full((1, 4096), 2))


def test_files_of_the_same_content_may_be_touched_and_linked(artifact: Path) -> None:
    with collage_evo.load(artifact) as session:
        os.utime(fall_back_file(artifact))
        os.link(fall_back_file(artifact), artifact.parent / "backup.onnx")
        assert rows_of(session, 5).shape == (5, 4)


@pytest.mark.parametrize("rows", [2, 5])
def test_what_is_written_without_a_trace_before_a_load_is_seen(artifact: Path, rows: int) -> None:
    """In a file that this process has hashed: before another session opens it, and before one loads its fall-back."""
    with folder_in_memory() as folder:
        place = Path(shutil.copytree(artifact, folder / "a.collage"))
        with collage_evo.load(place) as session:
            for file in place.rglob("model.onnx"):
                replace_unseen(file, b"Relu", b"Sqrt")
            if rows == 5:
                with pytest.raises(InputError, match=CHANGED):
                    rows_of(session, 5)
            else:
                np.testing.assert_array_equal(rows_of(session, 2), 3)
        with pytest.raises(InputError, match="was changed: copy the artifact again"):
            collage_evo.load(place)


def test_a_large_file_is_read_at_each_check() -> None:
    with folder_in_memory() as folder:
        (folder / "a").write_bytes(b"old" + bytes(2**21))
        os.utime(folder / "a", (0, 0))  # it changed long ago
        before = check_file(folder / "a")
        replace_unseen(folder / "a", b"old", b"new")
        assert check_file(folder / "a").digest != before.digest


def test_a_file_of_another_size_is_refused_before_it_is_read(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.truncate(fall_back_file(artifact), 2**33)  # it has no content, but takes minutes to read
    digest = hashlib.file_digest

    def small(file: Any, *rest: Any) -> Any:
        assert os.fstat(file.fileno()).st_size < 2**30
        return digest(file, *rest)

    monkeypatch.setattr(hashlib, "file_digest", small)
    with pytest.raises(InputError, match=r"was changed, it has 8589934592 bytes in place of \d+: copy the artifact"):
        collage_evo.load(artifact)
