"""What benchmarks share: rows that are kept and measured once, what lanes could win, models that take a batch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.codec import to_plain
from collage_evo.errors import InputError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.reference import reference_outputs
from collage_evo.models.builtin import make_builtin
from tests.report.helpers import make_result

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of the benchmarks' modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


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


def lanes_row(script: Any) -> Any:
    """The best library takes 5 ms on two threads and 8 on one, the answer 4.5."""
    ways = {"x": "x/fast", "y": "y", "x, one thread": "x", "y, one thread": "y"}
    times = {"x": 5.0, "y": 6.0, "x, one thread": 9.0, "y, one thread": 8.0, "ours": 4.5, "without lanes": 5.0}
    return script("lanes").Row(
        "builtin:x", 1, 2, "exact", {}, "placement", "x", None, ways, 3, [("lanes/x", 6), ("lanes/y", 2)], 10,
        {side: [[ms, ms], [ms, ms]] for side, ms in times.items()},
        {"ours": (5.0 / 4.5, 1.1, 1.12), "without lanes": (1.0, 0.99, 1.01)}, {},
    )  # fmt: skip


def test_lanes_could_win_what_two_threads_lose(script: Any) -> None:
    row = lanes_row(script)
    assert (row.best(one_thread=False), row.best(one_thread=True)) == ("x", "y, one thread")
    assert row.bound == 1.25
    assert row.reached == pytest.approx((5.0 / 4.5 - 1) / 0.25)
    cells = [next(iter(column.cells)) for column in script("lanes").table([row]).columns]
    assert cells[:3] == ["x", "1.25", "x/fast"]
    assert cells[-1] == "2, 80% of the operators"


def test_the_mean_is_over_models_where_lanes_could_win(script: Any) -> None:
    row = lanes_row(script)
    bounded = replace(row, times_ms={**row.times_ms, "y, one thread": [[9.9]], "x, one thread": [[9.9]]})
    told = script("lanes").summary([row, replace(bounded, speedups={**row.speedups, "ours": (0.9, 0.9, 0.9)})])
    assert "least: 0.900" in told
    assert "geometric mean of the 1 whose bound is 1.10 or more: 1.111" in told


@pytest.mark.parametrize(
    "source", ["builtin:mobilenet_v2?size=32", "builtin:bert?layers=1&length=8&hidden=24&heads=2"]
)
def test_a_model_that_takes_a_batch_gives_what_it_gave_sample_by_sample(
    script: Any, tmp_path: Path, source: str
) -> None:
    one = make_builtin(source, 0)[1]
    two = onnx.load(script("lanes").batched(source, 2, tmp_path))
    feeds = random_inputs(two, 0)
    both = reference_outputs(two, feeds)
    for sample in range(2):
        alone = reference_outputs(one, {name: array[sample : sample + 1] for name, array in feeds.items()})
        for found, expected in zip(both, alone, strict=True):
            np.testing.assert_allclose(found[sample : sample + 1], expected, rtol=1e-3, atol=1e-4)


def test_what_a_run_took_is_read_from_its_result(script: Any) -> None:
    result = to_plain(make_result())
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
