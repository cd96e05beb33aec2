"""What ``benchmarks/peers.py`` compares with, and how sides take turns."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.answer.baselines import Baseline
from collage_evo.backends.base import Target
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.fitness.references import write_references
from collage_evo.genome.greedy import greedy_placement
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.slots import usable_cores
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo_cuda.torch.export import as_module
from tests.support.models import tiny_convnet
from tests.support.spaces import make_space, resnet_like


def alone(backend: str, variant: str, latency_ms: float) -> Baseline:
    return Baseline(f"{backend}/{variant}", backend, variant, Path(backend), Outcome(latency_ms, n=9))


def test_each_library_takes_part_in_its_best_way_unless_it_is_far_behind(script: Any) -> None:
    given = [("b1", "slow", 1.9), ("b0", "default", 1.0), ("b1", "fast", 1.2), ("b2", "default", 9.0)]
    found = script("peers").best_ways([alone(*one) for one in given])
    assert {name: baseline.variant for name, baseline in found.items()} == {"b0": "default", "b1": "fast"}


def test_the_best_of_the_greedy_partitions_is_compared_with(script: Any) -> None:
    space = make_space(resnet_like(3), random.Random(2), engines=3, support=0.6)
    orders = [("b0", "b1", "b2"), ("b1", "b0", "b2"), ("b2", "b0", "b1")]
    costs = [space.predict(greedy_placement(space, [(name, "default") for name in order])) for order in orders]
    assert len(set(costs)) > 1
    ways = {f"b{k}": alone(f"b{k}", "default", 1.0 + k) for k in range(3)}
    assert space.predict(script("peers").best_greedy(space, ways)) == min(costs)


def test_the_answer_is_compared_with_the_fastest_other_of_the_same_rounds(script: Any) -> None:
    turn = script("turns").Turn
    times = {"openvino": (4, 8), "PyTorch": (3, 6), "greedy": (8, 16), "ours": (2, 4), "reloaded": (1, 1)}
    rounds = {name: [turn((float(ms),), 0) for ms in found] for name, found in times.items()}
    found = script("peers").speedups(rounds, "ours", ["openvino", "PyTorch"])
    assert found == {"the best other": ("PyTorch", 1.5, 1.5, 1.5), "greedy": ("greedy", 4.0, 4.0, 4.0)}


def test_lanes_could_win_what_two_threads_lose_in_the_best_library(script: Any) -> None:
    times = {"openvino": 6.0, "PyTorch": 5.0, "openvino, one thread": 8.0, "ncnn, one thread": 9.0, "ours": 4.0}
    row = script("peers").Row(
        model="builtin:x", device="cpu", threads=2, budget="exact", environment={}, answer="placement", error=None,
        baselines={}, libraries={}, reported_ms=4.0, times_ms={name: [[ms]] for name, ms in times.items()},
        speedups={"ours": {"the best other": ("PyTorch", 1.25, 1.2, 1.3)}}, where={}, search={},
    )  # fmt: skip
    assert row.bound == 2 * 5.0 / 8.0
    columns = {str(column.header): next(iter(column.cells)) for column in script("peers").table([row]).columns}
    assert {name: cell for name, cell in columns.items() if cell} == {
        "network, ms": "x", "openvino": "6.000", "PyTorch": "5.000", "ours": "4.000", "over the best other": "1.250",
        "bound": "1.25",
    }  # fmt: skip


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    target, path = Target(), tmp_path / "best.collage"
    program = Compiler(target, PieceCache(tmp_path / "cache", 10**9)).whole(tiny_convnet(), "onnxruntime", "default")
    write_artifact(path, [Profile(program)], target)
    return path


def test_a_side_that_does_not_start_is_left_out_where_it_may_be(
    script: Any, artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {"lame": ["session", f"{artifact}.gone"], "ours": ["session", str(artifact)]}
    turns = script("turns")
    found = turns.take_turns(sides, usable_cores()[:1], 2, 0.01, may_die=["lame"])
    assert {name: len(rounds) for name, rounds in found.items()} == {"ours": 2}
    assert "lame is left out" in capsys.readouterr().out
    with pytest.raises(turns.SideDied, match="run it by hand"):
        turns.take_turns(sides, usable_cores()[:1], 1, 0.01)


def test_a_side_that_is_about_to_die_is_told_as_dead_and_leaves_no_other_error(script: Any) -> None:
    """It reads no more, and has not ended yet."""
    turns = script("turns")
    dying = [sys.executable, "-c", "import os, time; os.close(0); os.close(1); time.sleep(60)"]
    with subprocess.Popen(dying, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read() == ""
            turns.begin_turn(process, 0.01)
            with pytest.raises(turns.SideDied):
                turns.end_turn(process)
        finally:
            process.kill()


def test_pytorch_gives_the_models_outputs_or_takes_no_part(script: Any, tmp_path: Path, artifact: Path) -> None:
    pytest.importorskip("torch")
    model, path = tiny_convnet(), tmp_path / "model.onnx"
    onnx.save(tiny_convnet(), path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    os.link(tmp_path / "model.onnx.data", tmp_path / "linked")  # as a run's weights are
    feeds = random_inputs(model, 0)
    expected = reference_outputs(model, feeds)[0]
    sides = {}
    for name, factor in (("right", 1.0), ("wrong", 1.1)):
        reference = tmp_path / f"{name}.npz"
        write_references(reference, [(feeds, {"y": factor * expected})])
        for exact in ("yes", "no"):
            sides[f"{name}, {exact}"] = ["pytorch", "eager", exact, str(path), str(reference), str(artifact)]
    found = script("turns").take_turns(sides, usable_cores()[:1], 1, 0.01, may_die=list(sides))
    assert set(found) == {"right, yes", "right, no"}


@pytest.mark.parametrize("half", ["", "float16"])
def test_all_of_a_pytorch_module_is_on_the_device_that_was_asked_for(script: Any, half: str) -> None:
    torch = pytest.importorskip("torch")
    graph = build_graph(normalise(script("networks").make_network("network:nasnet_a?size=32&cells=1&filters=96")))
    module = as_module(graph, True, "meta", half)
    with torch.no_grad():
        (scores,) = module(torch.zeros(1, 3, 32, 32, device="meta"))
    assert (scores.device.type, tuple(scores.shape)) == ("meta", (1, 1000))
    assert str(scores.dtype) == f"torch.{half or 'float32'}"


def test_pytorch_is_no_backend_of_the_search_that_it_is_compared_with(script: Any) -> None:
    options = Namespace(device="cpu", seconds=None, set=["target.cores=[0]"])
    config = script("peers").settings("builtin:squeezenet", 1, "exact", options)
    assert "onnxruntime" in config.backends.use
    assert "torch" not in config.backends.use
    assert config.accuracy.budget == "exact"
    assert config.target.cores == [0]
