"""Lanes of several cores: offered where there are enough, right, and each library's threads on its lane's cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.base import Built
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import piece_variants, select_backends
from collage_evo.errors import InputError
from collage_evo.files import read_json
from collage_evo.graph.convert.read import build_graph
from collage_evo.hardware.target import Target
from collage_evo.runtime import pools
from collage_evo_lanes import backend as lanes_module
from collage_evo_lanes import lane_threads as crew_module
from collage_evo_lanes.backend import DESCRIBED, Engine, LanesBackend, engine_on
from collage_evo_lanes.estimate import node_ms, on_cores
from collage_evo_lanes.plan import LanePlan
from plugins.lanes.tests.hand_lanes import random_model
from plugins.lanes.tests.test_lanes import Bound
from plugins.lanes.tests.test_lanes_described import branches
from tests.support.models import chain

FOUR = Target(threads=4)
CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


def libraries_threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def settles(found: Callable[[], object], wanted: object) -> bool:
    """Threads go to their cores when they first run."""
    until = time.monotonic() + 200.0
    while found() != wanted and time.monotonic() < until:
        time.sleep(0.01)
    return found() == wanted


@pytest.mark.parametrize(
    ("threads", "widths"), [(2, ()), (3, ()), (4, (2,)), (6, (2,)), (8, (2, 4)), (12, (2, 4))]
)
def test_lanes_are_as_wide_as_leaves_two_of_them(threads: int, widths: tuple[int, ...]) -> None:
    graph = build_graph(branches())
    (lanes,) = (b for b in select_backends((), Target(threads=threads)) if b.name == "lanes")
    plain = [variant.name for variant in LanesBackend().variants_of(graph, graph.all_nodes)]
    offered = [variant.name for variant in piece_variants(lanes, graph, graph.all_nodes, None, 0.0)]
    assert [name for name in offered if name not in plain] == [f"onnxruntime-{width}-cores" for width in widths]


def test_an_engine_that_cannot_be_told_its_cores_is_refused() -> None:
    for engine in DESCRIBED:
        assert engine_on(engine, (0, 1)).name == engine.backend
    for name in ("openvino", "ncnn", "tvm"):
        with pytest.raises(InputError, match=f"{name} cannot be told"):
            engine_on(Engine(name), (0, 1))


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_in_wide_lanes_give_right_numbers_many_times(seed: int, tmp_path: Path) -> None:
    bound = Bound(random_model(seed), "onnxruntime-2-cores", tmp_path, FOUR)
    assert {part.lane for part in read_json(tmp_path / "plan.json", LanePlan).parts} <= {0, 1}
    assert max(bound.error(run) for run in range(20)) < 1e-5


@needs_two_cores
@pytest.mark.parametrize("places", [(0, 1, 0, 1), (0, 1, 1, 0)])
def test_every_thread_of_a_lane_has_one_of_its_cores_and_there_are_no_more(
    places: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores = [CORES[place] for place in places]
    for module in (lanes_module, crew_module):
        monkeypatch.setattr(module, "own_cores", lambda threads: cores[:threads])
    graph, backend = build_graph(branches()), LanesBackend(4)
    variant = backend.variant("onnxruntime-2-cores")
    assert isinstance(backend.build(branches(), FOUR, variant, tmp_path), Built)
    plan = read_json(tmp_path / "plan.json", LanePlan)
    sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    ins, outs = ([np.ones(tensor.shape, tensor.dtype) for tensor in side] for side in sides)
    before = libraries_threads()
    loaded = backend.load(tmp_path, FOUR, variant, *sides)
    pool = sorted(libraries_threads() - before)
    wanted = [{cores[2 * part.lane + 1]} for part in plan.parts]  # one thread beside the lane's own
    assert {part.lane for part in plan.parts} == {0, 1}
    assert settles(lambda: [os.sched_getaffinity(thread) for thread in pool], wanted)
    call = loaded.bind(ins, outs)
    for _ in range(3):
        call()
    (lane,) = libraries_threads() - before - set(pool)
    assert os.sched_getaffinity(lane) == {cores[2]}
    assert os.sched_getaffinity(0) >= set(cores)


@needs_two_cores
def test_threads_that_keep_off_the_callers_core_are_not_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moved: dict[int, set[int]] = {}
    monkeypatch.setattr(pools, "own_cores", lambda threads: CORES)
    monkeypatch.setattr(os, "sched_setaffinity", moved.__setitem__)
    library, target = get_backend("onnxruntime"), replace(FOUR, threads=2)
    variant = library.variant("default")
    model = chain(2)
    graph = build_graph(model)
    assert isinstance(library.build(model, target, variant, tmp_path), Built)
    sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    told = library.keeping_to(CORES)
    assert told is not None
    before, loaded = libraries_threads(), []
    with pools.workers_apart(2):
        loaded.append(told.load(tmp_path, target, variant, *sides))
        (there,) = libraries_threads() - before
        assert settles(lambda: os.sched_getaffinity(there), {CORES[1]})
        loaded.append(library.load(tmp_path, target, variant, *sides))
    (other,) = libraries_threads() - before - {there}
    assert moved == {other: {CORES[1]}}


def test_more_cores_help_what_is_long_and_nothing_that_is_short() -> None:
    assert on_cores(10.0, 1) == 10.0
    assert 10.0 / 4 < on_cores(10.0, 4) < on_cores(10.0, 2) < 10.0
    assert on_cores(0.01, 4) == 0.01
    graph = build_graph(branches())
    assert sum(node_ms(graph, 2)) < sum(node_ms(graph))
