"""Regions on lanes: parts of every library side by side give right numbers, and what goes wrong in one is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import BuildFailure, Built, Probe, no
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import CostJob
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Region
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.timing import TimingSettings
from collage_evo_lanes.backend import ENGINES, LanesBackend
from plugins.lanes.tests.branchy import BranchyNet
from plugins.lanes.tests.hand_lanes import FAULTS, HandLanes, random_model
from tests.fitness.helpers import cost_job, make_setting
from tests.support.faults import FaultyBackend, install_backend

LIBRARIES = ("onnxruntime", "openvino", "ncnn", "tvm")
TWO = Target(threads=2)


class Bound:
    """A model built on lanes, loaded, and bound to memory of its own."""

    def __init__(self, model: onnx.ModelProto, variant: str, folder: Path, target: Target = TWO) -> None:
        graph, backend = build_graph(model), HandLanes()
        if not (folder / "plan.json").exists():
            built = backend.build(model, target, backend.variant(variant), folder)
            assert isinstance(built, Built), built
        sides = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
        ins, outs = map(list, sides)
        self.inputs, self.outputs = ([np.zeros(t.shape, t.dtype) for t in side] for side in (ins, outs))
        self.call: Any = backend.load(folder, target, backend.variant(variant), ins, outs)
        self.call = self.call.bind(self.inputs, self.outputs)
        self._model, self._graph, self._reference = model, graph, Reference(model)

    def error(self, seed: int) -> float:
        """Of a run on other inputs."""
        feeds = random_inputs(self._graph, seed)
        for array, value in zip(self.inputs, feeds.values(), strict=True):
            array[...] = value
        for array in self.outputs:
            array.fill(np.nan)
        self.call()
        return relative_error(self.outputs, self._reference.run(feeds)).relative


@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_in_random_lanes_give_right_numbers_many_times(seed: int, lanes: int, tmp_path: Path) -> None:
    bound = Bound(random_model(seed), "onnxruntime", tmp_path, replace(TWO, threads=lanes))
    assert max(bound.error(run) for run in range(30)) < 1e-5


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_runs_parts_in_lanes(library: str, tmp_path: Path) -> None:
    bound = Bound(random_model(5, 8), library, tmp_path)
    assert max(bound.error(run) for run in range(20)) < 1e-4


def test_two_sessions_run_at_the_same_time_and_each_in_several_threads(tmp_path: Path) -> None:
    model = random_model(3)
    graph = build_graph(model)
    Bound(model, "onnxruntime", tmp_path)
    piece = Piece(tmp_path, "handlanes", "onnxruntime", graph.inputs, graph.outputs, (), HandLanes().version_of(
        HandLanes().variant("onnxruntime")
    ))  # fmt: skip
    tensors = {name: graph.tensors[name] for name in (*graph.inputs, *graph.outputs)}
    program = Program((piece,), graph.inputs, graph.outputs, tensors)
    artifact = tmp_path.with_suffix(".collage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collage_evo.backends.registry._registered", {"handlanes": HandLanes})
        write_artifact(artifact, [Profile(program)], TWO)
        sessions = [load_artifact(artifact) for _ in range(2)]
    feeds = random_inputs(graph, 1)
    wanted, wrong = Reference(model).run(feeds), []

    def many(session: Any) -> None:
        for _ in range(30):
            if relative_error(session.run(None, feeds), wanted).relative > 1e-5:
                wrong.append(session)

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(many, sessions * 2))
    for session in sessions:
        session.close()
    assert not wrong
    while lanes := [thread for thread in threading.enumerate() if thread.name.startswith("lane ")]:
        lanes[0].join(timeout=200.0)
        assert not lanes[0].is_alive()


def test_what_was_built_for_other_tensors_or_has_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    model = random_model(1)
    graph, backend = build_graph(model), HandLanes()
    Bound(model, "onnxruntime", tmp_path)
    variant = backend.variant("onnxruntime")
    outs = [graph.tensors[name] for name in graph.outputs]
    ins = [graph.tensors[name] for name in graph.inputs]
    with pytest.raises(InputError, match="lanes has float32"):
        backend.load(tmp_path, TWO, variant, [replace(tensor, shape=(1, 4, 7, 6)) for tensor in ins], outs)
    plan = tmp_path / "plan.json"
    plan.write_text(plan.read_text().replace('"x"', '"y"'))
    with pytest.raises(InputError, match=r"plan\.json is damaged"):
        backend.load(tmp_path, TWO, variant, ins, outs)


def test_what_no_plan_can_hold_is_a_failure_to_build_with_the_reason(tmp_path: Path) -> None:
    net = BranchyNet(0)
    x, nothing = net.image("x", 64), net.input("nothing", (1, 0, 28, 28))
    model = net.model(net.op("Concat", net.conv(x, 64, 5), nothing, net.conv(x, 64, 5), axis=1))
    failure = LanesBackend().build(model, TWO, LanesBackend().variant("onnxruntime"), tmp_path)
    assert isinstance(failure, BuildFailure)
    assert failure.reason == "lanes: nothing is float32[1, 0, 28, 28]: empty, or of no known type or size"


def test_variants_are_engines_as_their_libraries_usually_run() -> None:
    for engine in ENGINES:
        variant = get_backend(engine.backend).variant(engine.variant)
        assert (variant.arithmetic, variant.int8_form, variant.device) == (engine.arithmetic, None, "cpu")
    names = [variant.name for variant in LanesBackend.variants]
    assert names[:5] == ["openvino", "openvino-bf16", "onnxruntime", "ncnn", "tvm"]
    assert len(set(names)) == len(names)


def test_an_engine_that_is_not_usable_is_declined_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, graph = HandLanes(), build_graph(random_model(0))
    monkeypatch.setattr(type(get_backend("ncnn")), "probe", lambda self: Probe(False, reason="ncnn is not there"))
    assert backend.declines(backend.variant("ncnn")) == "ncnn is not there"
    assert backend.declines(backend.variant("onnxruntime")) == ""
    assert backend.probe().available
    offered = {variant.name for variant in backend.variants_of(graph, graph.all_nodes)}
    assert "onnxruntime" in offered
    assert "ncnn" not in offered


def test_a_region_is_offered_in_engines_that_take_all_of_it_in_their_own_variant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, graph = HandLanes(), build_graph(random_model(0))
    openvino, onnxruntime = type(get_backend("openvino")), type(get_backend("onnxruntime"))
    monkeypatch.setattr(openvino, "variants_of", lambda self, graph, nodes: ())
    monkeypatch.setattr(onnxruntime, "supports_node", lambda self, graph, node: no("not this one"))
    offered = {variant.name for variant in backend.variants_of(graph, graph.all_nodes)}
    assert not offered & {"openvino", "onnxruntime"}
    assert "ncnn" in offered


EXPECTED = {
    "crash": "crash: killed by SIGSEGV",
    "exit": "crash: exit code 0",
    "hang": "hung: no answer within 1 s",
    "raise": "raised: RuntimeError: lanes: faulty/raise in lane {}: RuntimeError: raised",
}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A measuring process that knows lanes with a faulty engine; its model is a convolution and its Relu."""
    folder = tmp_path_factory.mktemp("faults")
    setting = replace(make_setting(folder), target=TWO)
    with pytest.MonkeyPatch.context() as patch:
        for backend in (FaultyBackend, HandLanes):
            for name, value in install_backend(folder / backend.name, backend).items():
                patch.setenv(name, value)
        with Sandbox(setting, (), 2**30) as sandbox:
            yield sandbox


BOTH = [(fault, kind, lane) for fault in FAULTS for kind, lane in (("to", 0), ("back", 1))]


@pytest.mark.parametrize(("fault", "kind", "lane"), [*BOTH, ("crash", "back-2-cores", 1)])
def test_a_fault_in_one_lane_is_a_reason_and_the_next_job_is_done(
    sandbox: Sandbox, fault: str, kind: str, lane: int
) -> None:
    timing = TimingSettings(1, 5, 0.001, max_seconds=5.0)
    job = CostJob(Region(3, "handlanes", f"faulty-{fault}-{kind}"), timing, give_up_ms=1e9, flush=False)
    answer = sandbox.call(job, 1.0 if fault == "hang" else 60.0)
    assert isinstance(answer, Failure)
    assert EXPECTED[fault].format(lane) in str(answer)
    after = sandbox.call(cost_job(5), 60.0)
    assert not isinstance(after, Failure), after
