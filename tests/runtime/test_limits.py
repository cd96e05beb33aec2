"""An index that leads out of a tensor never reaches a library that would follow it; a session goes on as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import collage_evo
from collage_evo.errors import InputError
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.genome.failure import Failed, Fault
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Region
from collage_evo.runtime import runner
from collage_evo.runtime.artifact import MANIFEST, Profile, read_artifact, write_artifact
from collage_evo.runtime.limits import require_inside, reraise_index_error
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from tests.runtime.helpers import TARGET, alternating, whole
from tests.support.models import parse_graph

ROWS, IDS = 5, np.array([[0, 4, -5]])
WRONG = (5, -6, 2**31, -(2**63), 2**63 - 1)


def graph_of(text: str) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(parse_graph(text, opset=18))


def embedding(size: int | str = 3, extra: str = "") -> onnx.ModelProto:
    """Rows of a table at ``ids``, with their sign changed."""
    table = ", ".join(map(str, range(2 * ROWS)))
    text = f"g (int64[1, {size}] ids) => (float[1, {size}, 2] y) <float[{ROWS}, 2] w = {{{table}}}>"
    return graph_of(f"{text} {{ {extra or 'k = Identity(ids)'} e = Gather(w, k) y = Neg(e) }}")


def saved(folder: Path, **changes: object) -> Path:
    """An artifact whose first profile says ``changes``; None takes a key out."""
    artifact = folder / "a.collage"
    write_artifact(artifact, [Profile(whole(embedding(), folder / "pieces", "openvino"))], TARGET)
    manifest = json.loads((artifact / MANIFEST).read_text())
    manifest["profiles"][0] |= changes
    manifest["profiles"][0] = {key: value for key, value in manifest["profiles"][0].items() if value is not None}
    (artifact / MANIFEST).write_text(json.dumps(manifest))
    return artifact


def expected(ids: np.ndarray) -> np.ndarray:
    return -np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)[ids]


def refuses_what_leads_out(session: Session) -> None:
    for value in WRONG:
        with pytest.raises(InputError, match=rf"'ids'.*idx={value} must be within the inclusive range \[-5,4\]"):
            session.run(None, {"ids": np.where(IDS == 4, value, IDS)})
        np.testing.assert_array_equal(session.run(None, {"ids": IDS})[0], expected(IDS))


@pytest.mark.parametrize("backends", [("openvino",), ("tvm",), ("onnxruntime", "openvino")])
def test_what_leads_out_is_refused_and_the_session_goes_on(backends: tuple[str, ...], tmp_path: Path) -> None:
    with Session([program_of(embedding(), tmp_path, backends)], TARGET) as session:
        refuses_what_leads_out(session)


def program_of(model: onnx.ModelProto, cache: Path, backends: tuple[str, ...]) -> Program:
    """Of one backend as a whole, of several operator by operator."""
    return whole(model, cache, *backends) if len(backends) == 1 else alternating(model, cache, backends)


def test_a_fall_back_with_open_shapes_refuses_it_too(tmp_path: Path) -> None:
    with Session([whole(embedding("n"), tmp_path)], TARGET) as session:
        for value in WRONG:
            with pytest.raises(InputError, match="out of data bounds"):
                session.run(None, {"ids": np.where(IDS == 4, value, IDS)})
            np.testing.assert_array_equal(session.run(None, {"ids": IDS})[0], expected(IDS))


def test_what_the_caller_wrote_before_stays(tmp_path: Path) -> None:
    with Session([whole(embedding(), tmp_path, "openvino")], TARGET) as session:
        session.feed({"ids": IDS})
        with pytest.raises(InputError):
            session.feed({"ids": IDS + ROWS})
        np.testing.assert_array_equal(session.read("ids"), IDS)


def test_who_raises_by_itself_is_not_checked_before(tmp_path: Path) -> None:
    program = whole(embedding(), tmp_path)
    assert not program.limits
    with Session([program], TARGET) as session, pytest.raises(InputError, match="out of data bounds"):
        session.run(None, {"ids": IDS + ROWS})


@pytest.mark.parametrize("size", [3, "n"])
def test_indices_that_nobody_vouches_for_are_not_compiled(size: int | str, tmp_path: Path) -> None:
    compiler, model = Compiler(TARGET, PieceCache(tmp_path, 2**30)), embedding(size, "k = Add(ids, ids)")
    for backend in ("openvino", "tvm", "ncnn"):
        with pytest.raises(Failed, match=r"k is computed|depends on data|is open") as found:
            compiler.whole(model, backend, "default")
        assert found.value.failure.fault is Fault.DECLINED
    compiler.whole(model, "onnxruntime", "default")
    if size == 3:
        region = Region(build_graph(model).all_nodes, "openvino", "default")
        with pytest.raises(Failed):
            compiler.region(build_graph(model), region)


def test_an_artifact_has_the_limits(tmp_path: Path) -> None:
    artifact = tmp_path / "a.collage"
    program = whole(embedding(), tmp_path / "pieces", "openvino")
    write_artifact(artifact, [Profile(program)], TARGET, fallback=whole(embedding("n"), tmp_path / "pieces"))
    assert [program.limits for program in read_artifact(artifact).programs] == [{"ids": (-5, 5)}, {}]
    with collage_evo.load(artifact) as session:
        refuses_what_leads_out(session)
        with pytest.raises(InputError, match="idx=7"):  # by the fallback
            session.run(None, {"ids": np.array([[7, 0]])})


def test_an_artifact_without_limits_loads(tmp_path: Path) -> None:
    with collage_evo.load(saved(tmp_path, limits=None)) as session:
        np.testing.assert_array_equal(session.run(None, {"ids": IDS})[0], expected(IDS))


@pytest.mark.parametrize("limits", [{"ids": [1]}, {"ids": ["a", 2]}, {"nobody": [0, 1]}, {"ids": 7}, 5])
def test_limits_that_are_none_are_refused(limits: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="damaged"):
        read_artifact(saved(tmp_path, limits=limits))


FITS = np.array([[2**31 - 1, 0, -(2**31)]])
BEYOND = (2**31, -(2**31) - 1, 2**63 - 1)


def sums(first: str = "k = Reshape(i, s)", last: str = "Add") -> onnx.ModelProto:
    """Three whole numbers, and 1 more than the middle one; or where it is ``Max``, none below 0, 1 and 0."""
    text = "g (int64[1, 3] i) => (int64[3] y) <int64[1] s = {3}, int64[3] one = {0, 1, 0}>"
    return graph_of(f"{text} {{ {first} y = {last}(k, one) }}")


@pytest.mark.parametrize("backends", [("openvino",), ("onnxruntime", "openvino")])
def test_who_computes_with_32_bits_is_given_nothing_larger(backends: tuple[str, ...], tmp_path: Path) -> None:
    with Session([program_of(sums(last="Max"), tmp_path, backends)], TARGET) as session:
        for value in BEYOND:
            with pytest.raises(InputError, match=f"input 'i': {value} takes more than the 32 bits"):
                session.run(None, {"i": np.where(FITS == 0, value, FITS)})
            np.testing.assert_array_equal(session.run(None, {"i": FITS})[0], [2**31 - 1, 1, 0])


@pytest.mark.parametrize("backend", ["onnxruntime", "tvm"])
def test_who_computes_with_all_bits_is_given_any_number(backend: str, tmp_path: Path) -> None:
    with Session([whole(sums(), tmp_path, backend)], TARGET) as session:
        for value in BEYOND[:2]:
            given = np.where(FITS == 0, value, FITS)
            np.testing.assert_array_equal(session.run(None, {"i": given})[0], given[0] + [0, 1, 0])


def test_what_becomes_a_float_at_once_may_be_any_number(tmp_path: Path) -> None:
    text = "g (int64[1, 3] i) => (float[1, 3] y) <float[1] half = {0.5}> { f = Cast<to = 1>(i) y = Mul(f, half) }"
    model = graph_of(text)
    for program in (whole(model, tmp_path, "openvino"), alternating(model, tmp_path, ("openvino",))):
        with Session([program], TARGET) as session:
            for value in BEYOND:
                given = np.where(FITS == 0, value, FITS)
                np.testing.assert_array_equal(session.run(None, {"i": given})[0], given.astype(np.float32) * 0.5)


def test_of_what_others_computed_from_an_input_nothing_is_known(tmp_path: Path) -> None:
    computed = sums("j = Abs(i) k = Reshape(j, s)")
    assert alternating(computed, tmp_path, ("onnxruntime", "openvino", "onnxruntime")).limits == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -6.0, 5.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_float_index_is_cut_off_towards_zero_and_lies_within_the_limits(value: float, dtype: type) -> None:
    require_inside({"i": np.array([-5.5, -0.0, 4.75], dtype)}, {"i": (-5, 5)})
    with pytest.raises(InputError, match=r"^input 'i': ind(ex|ices) "):
        require_inside({"i": np.array([0.0, value], dtype)}, {"i": (-5, 5)})


class Lying(np.ndarray):
    """Hides what it holds from every check that calls its methods."""

    def min(self, *_: object, **__: object) -> int:  # type: ignore[override]
        return 0

    max = min  # type: ignore[assignment]

    def __array_ufunc__(self, *_: object, **__: object) -> np.ndarray:
        return np.ones(self.shape, bool)


def test_a_masked_array_with_masked_values_is_refused(tmp_path: Path) -> None:
    masked = np.ma.masked_array(IDS + ROWS, mask=[[False, True, False]])
    hidden = np.ma.masked_array(np.where(IDS == 4, 2**40, IDS), mask=IDS == 4)
    with Session([whole(embedding(), tmp_path, "tvm")], TARGET) as session:
        for given in (masked, hidden):
            with pytest.raises(InputError, match=r"^input 'ids' has masked values: fill them first") as raised:
                session.run(None, {"ids": given})
            assert "\n" not in str(raised.value)
        np.testing.assert_array_equal(session.run(None, {"ids": np.ma.masked_array(IDS)})[0], expected(IDS))


@pytest.mark.parametrize("size", [3, "n"])
def test_a_subclass_cannot_hide_what_it_holds(size: int | str, tmp_path: Path) -> None:
    with Session([limited(size, tmp_path)], TARGET) as session:
        with pytest.raises(InputError, match="idx=5"):
            session.run(None, {"ids": np.where(IDS == 4, 5, IDS).view(Lying)})
        for given in (IDS.view(Lying), np.asmatrix(IDS), mapped(tmp_path / "ids")):
            np.testing.assert_array_equal(session.run(None, {"ids": given})[0], expected(IDS))


def mapped(path: Path) -> np.memmap:
    found = np.memmap(path, IDS.dtype, "w+", shape=IDS.shape)
    found[...] = IDS
    return found


def limited(size: int | str, cache: Path) -> Program:
    """A program with limits; where ``size`` is open, its library reads arrays that are not in the arena."""
    if size == 3:
        return whole(embedding(), cache, "openvino")
    return replace(whole(embedding(size), cache), limits={"ids": (-ROWS, ROWS)})


@pytest.mark.parametrize("size", [3, "n"])
def test_what_the_caller_changes_after_the_check_does_not_run(
    size: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = IDS.copy()

    def check(*args: Any) -> None:
        require_inside(*args)
        ids[...] = 5

    monkeypatch.setattr(runner, "require_inside", check)
    with Session([limited(size, tmp_path)], TARGET) as session:
        np.testing.assert_array_equal(session.run(None, {"ids": ids})[0], expected(IDS))
        assert (ids == 5).all()
        with pytest.raises(InputError, match="idx=5"):
            session.run(None, {"ids": ids})
        ids[...] = IDS
        session.feed({"ids": ids})
        assert (ids == 5).all()
        session.execute()
        np.testing.assert_array_equal(session.read("y"), expected(IDS))


def test_an_error_that_is_not_about_an_index_stays_what_it_is() -> None:
    reraise_index_error(MemoryError("no room"))
    reraise_index_error(RuntimeError("the reindexer stopped"))
    for text in ("indices element out of data bounds, idx=9", "invalid index found, index = 9", "index out of range"):
        with pytest.raises(InputError, match=text):
            reraise_index_error(RuntimeError(text))


def test_no_indices_at_all_lead_nowhere() -> None:
    require_inside({"i": np.zeros((0, 3), np.int64)}, {"i": (-5, 5)})
