"""Regions on lanes without the program's own cuts: every operator a part of its own, in a lane drawn at random."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from onnx import ModelProto

from collage_evo.backends.variants import Variant
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.models.builder import Builder
from collage_evo_lanes.backend import Engine, LanesBackend, Way
from collage_evo_lanes.cut import plan_of
from collage_evo_lanes.plan import LanePlan, Part

if TYPE_CHECKING:
    from collage_evo.patterns.language import Pattern


def scattered(graph: Graph, lanes: int, seed: int) -> tuple[LanePlan, tuple[ModelProto, ...]]:
    """A plan with a part for each operator."""
    rng = np.random.default_rng(seed)
    return in_lanes(graph, [int(rng.integers(lanes)) for _ in graph.nodes])


def in_lanes(graph: Graph, lane_of: Sequence[int]) -> tuple[LanePlan, tuple[ModelProto, ...]]:
    """A plan with a part for each operator, in these lanes."""
    sets = [1 << node.index for node in graph.nodes]
    parts = tuple(Part(lane, *graph.boundary(nodes)) for lane, nodes in zip(lane_of, sets, strict=True))
    return plan_of(graph, parts), tuple(extract(graph, nodes) for nodes in sets)


def random_model(seed: int, nodes: int = 12) -> ModelProto:
    """Convolutions, sums, joins and slices of images, wired at random; all that nobody reads is an output."""
    rng = np.random.default_rng(seed)
    b = Builder(f"random{seed}")
    there = {b.input("x", (1, 4, 6, 6)): 4, b.input("y", (1, 3, 6, 6)): 3}
    read: set[str] = set()
    for _ in range(nodes):
        name = str(rng.choice(list(there)[-5:]))
        channels = there[name]
        kind = rng.choice(["conv", "conv", "relu", "add", "join", "rows", "slice"])
        other = str(rng.choice(list(there)[-5:]))
        if kind == "conv":
            width = int(rng.integers(2, 6))
            weight = b.const(rng.normal(size=(width, channels, 1, 1)).astype(np.float32) / channels)
            made, width = b.op("Conv", name, weight), width
        elif kind == "add" and there[other] == channels:
            made, width = b.op("Add", name, other), channels
        elif kind == "join" and channels + there[other] < 12:
            made, width = b.op("Concat", name, other, axis=1), channels + there[other]
        elif kind == "rows":
            halves = [b.op("Slice", name, b.ints(a), b.ints(e), b.ints(2)) for a, e in ((0, 2), (2, 6))]
            made, width = b.op("Concat", *(b.op("Tanh", half) for half in halves), axis=2), channels
        elif kind == "slice" and channels > 2:
            made, width = b.op("Slice", name, b.ints(1), b.ints(channels), b.ints(1)), channels - 1
        else:
            made, width = b.op("Tanh", name), channels
        read |= {name, *([other] if kind in ("add", "join") else [])}
        there[made] = width
    return b.model(*(name for name in there if name not in (*read, "x", "y")))


FAULTS = ("crash", "exit", "hang", "raise")


TO, BACK = (0, 1), (1, 0)


@dataclass(frozen=True)
class HandWay(Way):
    """With the lanes that the operators of a chain take in turn; none cuts at random."""

    turns: tuple[int, ...] = ()

    @property
    def variant(self) -> Variant:
        turned = {(): "", TO: "-to", BACK: "-back"}[self.turns]
        wide = f"-{self.width}-cores" if self.width > 1 else ""
        return Variant(f"{self.engine.name}{turned}{wide}", self.engine.arithmetic)


class HandLanes(LanesBackend):
    """Cuts at random, or puts a chain of operators into two lanes in turn."""

    name: ClassVar[str] = "handlanes"
    ways: ClassVar[tuple[Way, ...]] = (
        *(HandWay(Engine(name)) for name in ("onnxruntime", "openvino", "ncnn", "tvm")),
        *(HandWay(Engine("faulty", fault), turns=turns) for fault in FAULTS for turns in (TO, BACK)),
        HandWay(Engine("onnxruntime"), 2),
        HandWay(Engine("faulty", "crash"), 2, BACK),
    )
    variants: ClassVar[tuple[Variant, ...]] = tuple(way.variant for way in ways)

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.regions import Regions

        return (Regions(),)

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        return tuple(way.variant for way in self.ways if self.takes_part(way, graph, nodes))

    def cut(self, graph: Graph, way: Way, lanes: int) -> tuple[LanePlan, tuple[ModelProto, ...]]:
        assert isinstance(way, HandWay)
        if not way.turns:
            return scattered(graph, lanes, zlib.crc32(" ".join(graph.outputs).encode()))
        return in_lanes(graph, [way.turns[place % 2] for place in range(len(graph.nodes))])
