"""What benchmarks share: rows that are measured once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.codec import to_plain
from collage_evo.errors import InputError
from collage_evo.graph.reference.reference import reference_outputs
from tests.support.results import result as approved


@dataclass(frozen=True)
class Figure:
    name: str
    value: float

    @property
    def key(self) -> tuple[object, ...]:
        return (self.name,)


def test_a_row_is_measured_once_and_kept_at_once(script: Any, tmp_path: Path) -> None:
    path, asked = tmp_path / "rows.json", []

    def measure(folder: Path) -> Figure:
        asked.append(folder)
        return Figure("a:b", 1.5)

    for _ in range(2):
        rows = script("rows").Rows(path, Figure)
        assert rows.get(("a:b",), tmp_path, measure) == Figure("a:b", 1.5)
    assert asked == [tmp_path / "a_b"]


def test_what_cannot_be_measured_is_said_and_tried_again(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(folder: Path) -> Figure:
        raise InputError("no such file")

    rows = script("rows").Rows(tmp_path / "rows.json", Figure)
    assert rows.get(("a",), tmp_path, fail) is None
    assert "a is left out: no such file" in capsys.readouterr().out
    assert rows.get(("a",), tmp_path, lambda folder: Figure("a", 1.0)) == Figure("a", 1.0)


def test_what_a_run_took_is_read_from_its_result(script: Any) -> None:
    result = to_plain(approved())
    row = script("time_to_answer")._row("m.onnx", 12.0, result)
    assert row.over_single == result["speedup_over_best_single"]["estimate"]
    assert row.whole == 12.0
    older = {**result, "speedup_over_best_single": {"median": 1.5, "low": 1.4, "high": 1.6}}
    assert script("time_to_answer")._row("m.onnx", 12.0, older).over_single == 1.5


def test_a_text_is_cut_into_the_longest_pieces(script: Any) -> None:
    vocabulary = {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "##a": 4, ",": 5, "#": 6}
    cut = script("ordinary_trained")._tokens
    assert cut("unaffable, # unq affable un", vocabulary, 9).tolist() == [1, 2, 3, 5, 6, 0, 0, 1]
    assert cut("unaffable", vocabulary, 2).tolist() == [1, 2]


def test_what_was_found_on_a_held_processor_is_not_the_answer_of_the_whole_one(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = script("ordinary")
    monkeypatch.delenv("COLLAGE_EVO_PROCESSOR", raising=False)  # the tests themselves may be held
    whole = ordinary._run(tmp_path, "net", 0.02)
    monkeypatch.setenv("COLLAGE_EVO_PROCESSOR", "avx2")
    assert len({whole, ordinary._run(tmp_path, "net", 0.02), ordinary._run(tmp_path, "net", 0.1)}) == 3


def test_a_file_is_run_on_each_sample_with_all_inputs_and_outputs(script: Any, tmp_path: Path) -> None:
    ordinary = script("ordinary")
    rows = {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "b": np.ones((3, 2), np.float32)}
    value = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=(1, 2))
    nodes = [onnx.helper.make_node(op, ["a", "b"], [op]) for op in ("Add", "Sub")]
    graph = onnx.helper.make_graph(nodes, "two", [value("a"), value("b")], [value("Add"), value("Sub")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path, data, kept = (str(tmp_path / name) for name in ("model.onnx", "data.npz", "made.npz"))
    onnx.save(model, path)
    np.savez(data, a=rows["a"], b=rows["b"])
    for library in ("onnxruntime", "openvino"):
        ordinary.outputs(library, path, data, kept)
        with np.load(kept) as made:
            added, subtracted = (made[name][:, 0] for name in made.files)
        np.testing.assert_array_equal(added, rows["a"] + 1)
        np.testing.assert_array_equal(subtracted, rows["a"] - 1)


@pytest.mark.parametrize(("off_by", "status"), [(0.0, "right"), (1e-5, "right"), (0.01, "wrong"), (None, "refused")])
def test_the_answer_for_a_reported_case_is_held_against_the_truth(
    script: Any, off_by: float | None, status: str
) -> None:
    cases = script("reported_cases")
    report = cases.CASES["tanh over x"]

    def answer(names: object, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        if off_by is None:
            raise InputError("no such shape")
        return [value * (1 + off_by) for value in reference_outputs(report.model(), feeds)]

    front, placement = [SimpleNamespace(exact=True, answer=True)], [SimpleNamespace(engine="one")]
    found = SimpleNamespace(front=front, placement=placement)
    result = SimpleNamespace(report=found, session=SimpleNamespace(run=answer))
    row = cases.judge(report, result, 1.0)
    assert (row.status, row.answer) == (status, "one")
    assert row.error == pytest.approx(off_by or 0.0, rel=0.1, abs=1e-7)
