"""A run takes its samples once, keeps them, and knows from them how wrong placements may be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.samples import Sample, read_samples
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import whole_variants
from collage_evo.backends.variants import Arithmetic
from collage_evo.config import parse_config
from collage_evo.errors import InputError
from collage_evo.fitness.judging import Judge
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes
from collage_evo.graph.prepare import PreparedModel
from collage_evo.models.builder import Builder
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext, Workplace
from collage_evo.run.open import decide_limits
from collage_evo.run.samples import (
    FixedShapes,
    model_file,
    require_runs,
    saved_shapes,
    shapes_of_run,
)
from collage_evo.run.stages import model as stage
from collage_evo.run.stages import samples as parts
from collage_evo.run.stages.samples import SAMPLES, calibration_feeds, held_out_samples
from tests.support.models import chain, parse_graph
from tests.support.typed import not_none

MODEL = chain(1)
SHAPE = (1, 4, 8, 8)
SCORE = "def score(outputs, items):\n    return 80.0 + sum(item['label'] for item in items) * 0\n"


def begun(folder: Path, count: int = 0, **accuracy: object) -> Workplace:
    """A run of a small model with ``count`` samples, numbered by their first value; random ones if there are none."""
    onnx.save(MODEL, folder / "m.onnx")
    data: dict[str, object] = {"model": {"source": str(folder / "m.onnx")}, "accuracy": accuracy}
    if count:
        x = np.random.default_rng(0).standard_normal((count, *SHAPE[1:])).astype(np.float32)
        x[:, 0, 0, 0] = np.arange(count)
        labels = {"label": np.arange(count)} if accuracy.get("metric") else {}
        np.savez(folder / "x.npz", x=x, **labels)  # type: ignore[arg-type]
        data["data"] = {"source": str(folder / "x.npz")}
    (folder / "run" / "work").mkdir(parents=True, exist_ok=True)
    return Workplace(parse_config(data, (), "test"), folder / "run", LineReporter())


def prepare(run: Workplace) -> PreparedModel:
    return stage.prepare(run, model_file(run.config))


def limits_of(run: Workplace) -> Limits:
    return decide_limits(run, prepare(run))


def numbers(run: Workplace, part: str) -> list[int]:
    return [int(sample.feeds["x"][0, 0, 0, 0]) for sample in read_samples(run.work / f"{part}.npz")]


def test_the_parts_share_nothing_and_the_search_s_have_what_the_model_gives(tmp_path: Path) -> None:
    run = begun(tmp_path, 20)
    model = prepare(run)
    every = [number for part in ("calibration", "search", "held_out") for number in numbers(run, part)]
    assert sorted(every) == list(range(20))
    assert [int(feeds["x"][0, 0, 0, 0]) for feeds in calibration_feeds(run)] == numbers(run, "calibration")
    (first, *_) = read_samples(run.files.search)
    for name, expected in model.references[0][1].items():
        np.testing.assert_array_equal(first.expected[name], expected)
    last = read_samples(held_out_samples(run, model))
    assert [int(sample.feeds["x"][0, 0, 0, 0]) for sample in last] == numbers(run, "held_out")
    assert all(sample.expected for sample in last)


def test_a_slow_model_is_judged_on_fewer_samples_by_the_error_than_by_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.py").write_text(SCORE)

    def searched(name: str, **accuracy: object) -> int:
        (tmp_path / name).mkdir()
        run = begun(tmp_path / name, 240, **accuracy)
        prepare(run)
        found = {part: numbers(run, part) for part in ("calibration", "search", "held_out")}
        every = sorted(number for part in found.values() for number in part)
        assert every == list(range(240)), "what it has no time for is held out"
        return len(found["search"])

    monkeypatch.setattr(parts, "SOON_SECONDS", math.inf)
    monkeypatch.setattr(parts, "SEARCH_PART_SECONDS", math.inf)
    assert searched("quick") == 60, "a quarter"
    monkeypatch.setattr(parts, "SOON_SECONDS", 0.0)
    assert searched("error") == parts.SEARCH_BY_ERROR
    assert searched("asked", search=40) == 40
    assert searched("metric", metric=f"{tmp_path / 'q.py'}:score", budget="1%") == 60
    monkeypatch.setattr(parts, "SEARCH_PART_SECONDS", 1e-6)
    monkeypatch.setattr(parts, "OVERTIME", 1e9)
    assert searched("slow") == parts.LEAST_SEARCHED
    monkeypatch.setattr(parts, "OVERTIME", 1.0)
    assert searched("slowest") == parts.FEWEST_SAMPLES
    assert searched("neighbours", metric="recall@10", budget="1%") == 12, "as many as the metric needs"


@pytest.mark.parametrize("count", [0, 240])
def test_what_the_references_computed_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    run, computed = begun(tmp_path, count), list[float]()

    class Counted(parts.Reference):
        def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            computed.append(feeds["x"][0, 0, 0, 0])
            return super().run(feeds)

    monkeypatch.setattr(parts, "Reference", Counted)
    model = prepare(run)
    searched, known = read_samples(run.work / "search.npz"), model.references[: run.config.verify.inputs]
    assert len(known) > 1
    assert len(computed) == len(searched) - len(known)
    for sample, (feeds, expected) in zip(searched, known, strict=False):
        np.testing.assert_array_equal(sample.feeds["x"], feeds["x"])
        (output,), (right,) = sample.expected.values(), expected.values()
        np.testing.assert_array_equal(output, right)


@pytest.mark.parametrize(("metric", "count"), [("", 12), ("score", 60)])
def test_a_slow_model_has_fewer_held_out_samples_for_its_error_than_for_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, count: int
) -> None:
    (tmp_path / "q.py").write_text(SCORE)
    accuracy = {"metric": f"{tmp_path / 'q.py'}:{metric}", "budget": "1%"} if metric else {}
    run = begun(tmp_path, 240, held_out=60, **accuracy)
    model = prepare(run)
    monkeypatch.setattr(parts, "HELD_OUT_SOON_SECONDS", 0.0)
    assert len(read_samples(held_out_samples(run, model))) == count == (60 if metric else parts.HELD_OUT_BY_ERROR)


def test_a_run_that_goes_on_keeps_the_samples_that_it_began_with(tmp_path: Path) -> None:
    first = prepare(begun(tmp_path, 20))
    place = begun(tmp_path, 20, seed=5)
    (tmp_path / "x.npz").unlink()
    np.testing.assert_array_equal(first.references[0][0]["x"], prepare(place).references[0][0]["x"])


def test_an_input_that_may_not_be_random_is_the_same_in_all_samples(tmp_path: Path) -> None:
    run = begun(tmp_path)
    text = "g (float[4, 3] x, int64[2] s) => (float[a, 3] y, float[b, 3] z) { y, z = Split<axis = 0>(x, s) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 16]> {text}'), tmp_path / "m.onnx")
    prepare(run)
    samples = [sample for part in ("search", "held_out") for sample in read_samples(run.work / f"{part}.npz")]
    assert {tuple(sample.feeds["s"]) for sample in samples} == {(2, 2)}
    assert len({float(sample.feeds["x"][0, 0]) for sample in samples}) == len(samples)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((6, 4, 4, 4)), r"has the shapes x: \[1, 4, 8, 8\]; the first has x: \[6, 4, 4, 4\].*--shapes 'x: "),
        (np.zeros((0, 4, 8, 8)), r"has no row of 'x' \(shape \[0, 4, 8, 8\]\)"),
        (np.zeros((0, 1, 4, 8, 8)), "holds no data"),
    ],
)
def test_data_without_a_sample_of_the_run_s_shapes_are_refused(array: np.ndarray, said: str, tmp_path: Path) -> None:
    dynamic = onnx.ModelProto.FromString(MODEL.SerializeToString())
    for axis in (0, 2, 3):
        dynamic.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    run = begun(tmp_path, 1)
    onnx.save(dynamic, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=array.astype(np.float32))
    run = replace(run, config=run.config.replacing("model", shapes={"x": list(SHAPE)}))
    with pytest.raises(InputError, match=said):
        prepare(run)


def test_without_data_samples_are_random_and_float32_alone_needs_none(tmp_path: Path) -> None:
    run = begun(tmp_path)
    prepare(run)
    sampled = not_none(run.store.get(SAMPLES))
    assert sampled.random
    assert min(sampled.calibration, sampled.search, sampled.held_out) > 0
    (tmp_path / "exact").mkdir()
    exact = begun(tmp_path / "exact", budget="exact")
    model = prepare(exact)
    limits = decide_limits(exact, model)
    assert (limits.budget, limits.front, limits.measured) == (0.0, 0.0, 0.0)
    alone = whole_variants(get_backend("openvino"), None, limits.measured)
    assert {variant.arithmetic for variant in alone} == {Arithmetic.FLOAT32}
    assert not held_out_samples(exact, model).exists()


def test_a_small_budget_holds_for_float32_too(tmp_path: Path) -> None:
    limits = limits_of(begun(tmp_path, budget=1e-5))
    assert limits.tolerance == pytest.approx(1e-5, rel=1.0), "or the model's own noise"
    assert limits.tolerance < 1e-3


def test_a_share_of_a_metric_is_one_of_what_the_model_reaches(tmp_path: Path) -> None:
    (tmp_path / "q.py").write_text(SCORE)
    run = begun(tmp_path, 20, metric=f"{tmp_path / 'q.py'}:score", budget="1%")
    limits = limits_of(run)
    assert limits.budget == pytest.approx(0.8)
    assert limits.front == pytest.approx(8.0)
    assert limits.tolerance == 1e-3, "a drop is no bound on numbers"
    assert limits.with_budget("2%").budget == pytest.approx(1.6)
    assert limits.with_budget("exact").budget == 0.0
    (tmp_path / "q.py").unlink()
    assert limits_of(run) == limits, "decided once"
    assert [int(sample.labels["label"][0]) for sample in read_samples(run.files.search)] == numbers(run, "search")


def test_a_metric_needs_data_and_says_what_it_raised(tmp_path: Path) -> None:
    (tmp_path / "q.py").write_text(SCORE)
    metric = f"{tmp_path / 'q.py'}:score"
    with pytest.raises(InputError, match=r"accuracy\.metric needs data to measure it on: give them with --data"):
        prepare(begun(tmp_path, metric=metric))
    run = begun(tmp_path, 20, metric=metric)
    (tmp_path / "q.py").write_text("def score(outputs, items):\n    return items[0]['no such label']\n")
    with pytest.raises(InputError, match=r"q\.py:score raised KeyError: 'no such label'"):
        limits_of(run)


def test_a_metric_that_was_changed_since_the_run_began_is_refused_by_each_process(tmp_path: Path) -> None:
    file = tmp_path / "metric.py"
    file.write_text(SCORE)
    run = begun(tmp_path, 8, metric=f"{file}:score")
    context = RunContext.at(run, limits_of(run))
    assert Judge(context.setting).metric.name
    file.write_text(SCORE.replace("80", "70"))
    with pytest.raises(InputError, match=r"metric\.py:score was changed since the run began: restore it"):
        _ = Judge(context.setting).metric
    context.machine.close()


def test_few_samples_are_all_of_the_parts(tmp_path: Path) -> None:
    run = begun(tmp_path, 2)
    prepare(run)
    sampled = not_none(run.store.get(SAMPLES))
    assert sampled.shared
    assert json.loads((run.work / "samples.json").read_text())["total"] == 2
    assert not replace(sampled, random=True).shared


def spoiled(folder: Path, part: slice, number: float) -> None:
    x = np.array(np.load(folder / "x.npz")["x"])
    x[part, -1, -1, -1] = number
    np.savez(folder / "x.npz", x=x)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("part", [slice(None), slice(0, 8)])
def test_nan_that_comes_out_of_the_model_is_refused_in_a_line_whatever_part_it_falls_into(
    number: float, part: slice, tmp_path: Path
) -> None:
    run = begun(tmp_path, 20)
    spoiled(tmp_path, part, number)
    told = r"holds NaN or infinity in 'x', and so does the model's own '\w+' then"
    with pytest.raises(InputError, match=told) as refused:
        prepare(run)
    assert "verify.nonfinite=kept" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nan_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    run = begun(tmp_path, 20)
    spoiled(tmp_path, slice(None), np.nan)
    config = run.config.model_copy(update={"verify": run.config.verify.model_copy(update={"nonfinite": "kept"})})
    assert prepare(replace(run, config=config)).references


def test_infinity_that_stays_inside_of_the_model_is_an_input_as_any_other(tmp_path: Path) -> None:
    """A mask of minus infinity, and missing values of a tree, are such inputs."""
    run = begun(tmp_path, 20)
    net = Builder("masked")
    onnx.save(net.model(net.op("Softmax", net.input("x", ("n", *SHAPE[1:])), axis=3)), tmp_path / "m.onnx")
    spoiled(tmp_path, slice(None), -np.inf)
    assert np.isfinite(next(iter(prepare(run).references[0][1].values()))).all()


@pytest.mark.parametrize("part", ["search", "held_out"])
def test_choices_that_rounding_changes_in_one_sample_are_excused(part: str, tmp_path: Path) -> None:
    text = "g (float[1, 400] x) => (int64[1, 100] i) <int64[1] k = {100}, float third = {0.3333}>"
    onnx.save(parse_graph(f"{text} {{ p = Mul(x, third) v, i = TopK(p, k) }}"), tmp_path / "m.onnx")
    data = {"model": {"source": str(tmp_path / "m.onnx")}, "data": {"source": str(tmp_path / "x.npz")}}
    order = np.random.default_rng(0).permutation(400)
    x = np.tile(np.linspace(0.1, 1, 400)[order], (20, 1)).astype(np.float32)
    x[:, 0] = 2 + np.arange(20)  # tells the samples apart
    for excused in (False, True):
        (tmp_path / str(excused) / "work").mkdir(parents=True)
        np.savez(tmp_path / "x.npz", x=x)
        run = Workplace(parse_config(data, (), "test"), tmp_path / str(excused), LineReporter())
        assert bool(limits_of(run).excused) == excused
        last = int(read_samples(run.work / f"{part}.npz")[-1].feeds["x"][0, 0]) - 2
        x[last, 1:] = (1 + 2.0**-23 * order)[1:]


def asked(folder: Path, *lengths: int, **sections: object) -> tuple[FixedShapes | OpenShapes, tuple[Sample, ...]]:
    """What a run of a model of open batch and length makes of samples of these lengths, and those that it takes."""
    net = Builder("open")
    onnx.save(net.model(net.op("Relu", net.input("x", ("batch", "length")))), folder / "m.onnx")
    for number, length in enumerate(lengths):
        np.savez(folder / f"{number:02}.npz", x=np.ones((1, length), np.float32))
    data = {"data": {"source": str(folder)}} if lengths else {}
    config = parse_config({"model": {"source": str(folder / "m.onnx"), **sections}, **data}, (), "test")
    return shapes_of_run(config, model_file(config))


def test_samples_of_several_shapes_mean_one_open_answer_unless_shapes_are_given(tmp_path: Path) -> None:
    found, samples = asked(tmp_path, 7, 4, 7, 250)
    assert found == OpenShapes({"x": (Dimension(1, 1, "batch"), Dimension(4, 250, "length"))})
    assert [sample.feeds["x"].shape[1] for sample in samples] == [7, 4, 7, 250]
    assert asked(tmp_path, shapes={"x": [1, 7]})[0] == FixedShapes(({"x": [1, 7]},))
    assert asked(tmp_path, 7, 4, shapes={"x": [[1, 7], [1, 4]]})[0] == FixedShapes(({"x": [1, 7]}, {"x": [1, 4]}))


def test_samples_of_one_shape_and_none_at_all_mean_what_they_meant(tmp_path: Path) -> None:
    assert asked(tmp_path)[0] == FixedShapes(({},))
    assert asked(tmp_path, 7, 7)[0] == FixedShapes(({"x": [1, 7]},))


def test_ranges_mean_an_open_answer_with_and_without_samples(tmp_path: Path) -> None:
    found, samples = asked(tmp_path, shapes={"length": "1..512", "batch": "1..8"})
    assert found == OpenShapes({"x": (Dimension(1, 8, "batch"), Dimension(1, 512, "length"))})
    assert samples == ()
    found, samples = asked(tmp_path, 7, 7, 9, shapes={"length": "1..512", "batch": 1})
    assert isinstance(found, OpenShapes)
    assert [sample.feeds["x"].shape[1] for sample in samples] == [7, 7, 9]
    with pytest.raises(InputError, match=r"sample 1 of .* has x \[1, 600\], outside of length: 1..512: leave it out"):
        asked(tmp_path, 7, 600, shapes={"length": "1..512", "batch": 1})


def test_what_the_model_does_not_run_on_is_refused_before_a_search(tmp_path: Path) -> None:
    net = Builder("rows")
    onnx.save(net.model(net.op("Reshape", net.input("x", ("n",)), net.ints(-1, 4))), tmp_path / "m.onnx")

    def check(*lengths: int, **sections: object) -> None:
        for path in tmp_path.glob("*.npz"):
            path.unlink()
        for number, length in enumerate(lengths):
            np.savez(tmp_path / f"{number}.npz", x=np.ones(length, np.float32))
        model = {"source": str(tmp_path / "m.onnx"), **sections}
        data = {"source": str(tmp_path)} if lengths else {}
        config = parse_config({"model": model, "data": data}, (), "test")
        file = model_file(config)
        found, samples = shapes_of_run(config, file)
        assert isinstance(found, OpenShapes)
        require_runs(config, found, samples, file)

    check(4, 12, 8)
    with pytest.raises(InputError, match=rf"sample 2 of {tmp_path} has x: \[7\]: .* leave it out of the data"):
        check(4, 12, 7)
    with pytest.raises(
        InputError, match=r"model\.shapes: the model runs at both ends of the range, but not on x: \[9\]"
    ):
        check(shapes={"n": "4..24"})
    with pytest.raises(InputError, match="not on x"):
        check(4, 12, shapes={"n": "4..24"})


def test_an_array_of_many_samples_is_cut_where_the_batch_is_fixed(tmp_path: Path) -> None:
    np.savez(tmp_path / "00.npz", x=np.ones((6, 9), np.float32))
    net = Builder("open")
    onnx.save(net.model(net.op("Relu", net.input("x", ("batch", "length")))), tmp_path / "m.onnx")
    model = {"source": str(tmp_path / "m.onnx"), "shapes": {"batch": 1, "length": "1..16"}}
    config = parse_config({"model": model, "data": {"source": str(tmp_path / "00.npz")}}, (), "test")
    _, samples = shapes_of_run(config, model_file(config))
    assert [sample.feeds["x"].shape for sample in samples] == [(1, 9)] * 6


def test_inputs_of_several_ranks_stay_profiles(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [output])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    for number, shape in enumerate(((3,), (3, 4))):
        np.savez(tmp_path / f"{number}.npz", x=np.ones(shape, np.float32))
    config = parse_config(
        {"model": {"source": str(tmp_path / "m.onnx")}, "data": {"source": str(tmp_path)}}, (), "test"
    )
    assert shapes_of_run(config, model_file(config))[0] == FixedShapes(({"x": [3]}, {"x": [3, 4]}))


def test_a_search_for_throughput_takes_one_shape(tmp_path: Path) -> None:
    asked(tmp_path, 7, 4)
    model, search = {"source": str(tmp_path / "m.onnx"), "shapes": {"x": [1, "1..9"]}}, {"objective": "throughput"}
    config = parse_config({"model": model, "search": search}, (), "test")
    with pytest.raises(InputError, match=r"search.objective=throughput takes one shape: give it with --shapes"):
        saved_shapes(config, tmp_path, model_file(config))
