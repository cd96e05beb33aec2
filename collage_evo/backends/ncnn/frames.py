"""Plans 3-D convolutions as 2-D ones: takes a region on [1, C, D, H, W] tensors, gives networks that make frames.

Every output frame of a convolution with a kernel of depth k is a 2-D convolution of its k input frames, stacked
as channels, with the weights [O, C, k, h, w] turned to [O, k C, h, w]. ncnn then brings its Winograd kernels to
it, which it has for two axes only. A sum with another tensor and a Relu behind it run in the same network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collage_evo.codec import to_json
from collage_evo.files import BUILD_ANEW, read_json
from collage_evo.graph.ir import Graph, Node

_PLAN = "frames.json"
_CACHED_WEIGHTS = 4 * 2**20
"""Bytes of weights up to which they stay in the cache from one frame to the next."""
_LARGE_PLANE = 1024
"""Elements of a plane above which a network has enough to do with one frame."""


@dataclass(frozen=True)
class Step:
    """One network. It makes ``frames`` frames of ``result`` in a run, one below the other in the same planes.

    Each takes ``depth`` frames of ``source``, the first one's ``stride`` frames after the last one's, beginning
    ``front`` frames before the first; those that do not exist are zero. ``addend`` is added, if there is one.
    In planes, frames of the source are ``pitch`` rows apart, those of addend and result ``result_pitch`` rows;
    planes of the result have ``result_rows`` rows.
    """

    source: str
    addend: str
    result: str
    pitch: int
    result_pitch: int
    result_rows: int
    frames: int = 1
    depth: int = 1
    stride: int = 1
    front: int = 0


@dataclass(frozen=True)
class FramesPlan:
    """The steps of a region in order, its inputs and outputs, and [C, D, H, W] of each of its tensors."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    steps: tuple[Step, ...]


def network_files(number: int) -> tuple[str, str]:
    """Names of the two files of step ``number``."""
    return f"step{number}.ncnn.param", f"step{number}.ncnn.bin"


def write_frames(graph: Graph, workdir: Path) -> tuple[str, ...]:
    """Plan the region, whose operators are all on five axes; the names of the files that say how to run it."""
    steps, files = [], [_PLAN]
    for number, nodes in enumerate(_fused(graph)):
        param, weights = network_files(number)
        (workdir / param).write_text(_network(graph, nodes))
        (workdir / weights).write_bytes(_weights(graph, nodes[0]) if nodes[0].op_type == "Conv" else b"")
        files += [param, weights]
        steps.append(_step(graph, nodes))
    names = {name for step in steps for name in (step.source, step.addend, step.result) if name}
    shapes = {name: graph.tensors[name].shape[1:] for name in sorted(names)}
    plan = FramesPlan(graph.inputs, graph.outputs, shapes, tuple(steps))
    (workdir / _PLAN).write_text(to_json(plan))
    return tuple(files)


def is_frames(workdir: Path) -> bool:
    """Whether :func:`write_frames` has written there."""
    return (workdir / _PLAN).exists()


def read_frames(workdir: Path) -> FramesPlan:
    """The plan that :func:`write_frames` wrote."""
    return read_json(workdir / _PLAN, FramesPlan, BUILD_ANEW)


def _fused(graph: Graph) -> list[list[Node]]:
    """Nodes in runs of one network each: a convolution, then a sum, then a Relu, each of them optional."""
    runs: list[list[Node]] = []
    for node in graph.nodes:
        last = runs[-1][-1] if runs else None
        follows = last is not None and last.outputs[0] in node.inputs and _only_reader(graph, last)
        rank = {"Conv": 0, "Add": 1, "Relu": 2}
        if last is not None and follows and rank[last.op_type] < rank[node.op_type]:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def _only_reader(graph: Graph, node: Node) -> bool:
    """Whether one node alone reads the result of ``node``, and reads it once."""
    result = node.outputs[0]
    readers = [name for user in graph.consumers.get(result, ()) for name in graph.nodes[user].inputs]
    return result not in graph.outputs and readers.count(result) == 1


def _step(graph: Graph, nodes: Sequence[Node]) -> Step:
    first, result = nodes[0], nodes[-1].outputs[0]
    made = {node.outputs[0] for node in nodes}
    addends = [n for node in nodes if node.op_type == "Add" for n in node.inputs if n not in made]
    # A sum on its own reads two.
    source, addend = first.inputs[0], addends[-1] if addends else ""
    height, result_height = (graph.tensors[name].shape[3] for name in (source, result))
    step = Step(source, addend, result, height, result_height, result_height)
    if first.op_type != "Conv":
        return step
    geometry = Geometry.of(graph, first)
    step = replace(step, depth=geometry.kernel[0], stride=geometry.strides[0], front=geometry.pads[0])
    frames = _frames_at_once(graph, first)
    if frames == 1:
        return step
    # Zeros between two frames are the padding of both; the second begins where the convolution steps on.
    top, bottom, down = geometry.pads[1], geometry.pads[4], geometry.strides[1]
    pitch = -(-(height + max(top, bottom)) // down) * down
    reach = (geometry.kernel[1] - 1) * geometry.dilations[1]
    rows = (frames * pitch + top + bottom - reach - 1) // down + 1
    return replace(step, pitch=pitch, result_pitch=pitch // down, result_rows=rows, frames=frames)


def _frames_at_once(graph: Graph, convolution: Node) -> int:
    """How many frames to make in one run: many if their planes are small and the weights large.

    512 channels on planes of 7x7 take 13 ms in place of 20 for two frames, 33 in place of 107 for eight (EPYC).
    """
    _, _, depth, height, width = graph.tensors[convolution.outputs[0]].shape
    if graph.constants[convolution.inputs[1]].nbytes <= _CACHED_WEIGHTS:
        return 1
    return max(n for n in range(1, depth + 1) if depth % n == 0 and (n == 1 or n * height * width <= _LARGE_PLANE))


@dataclass(frozen=True)
class Geometry:
    """A 3-D convolution's kernel, strides, dilations (depth, height, width) and pads (three before, three after)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @staticmethod
    def of(graph: Graph, node: Node) -> Geometry:
        given = node.attributes
        return Geometry(
            graph.tensors[node.inputs[1]].shape[2:],
            tuple(given.get("strides", (1, 1, 1))),
            tuple(given.get("dilations", (1, 1, 1))),
            tuple(given.get("pads", (0,) * 6)),
        )


def _network(graph: Graph, nodes: Sequence[Node]) -> str:
    """The network's text: ``kind name input_count output_count inputs... outputs... parameters...`` a layer."""
    two = any(node.op_type == "Add" for node in nodes)
    layers = ["Input in0 0 1 in0", *["Input in1 0 1 in1"] * two]
    blob = "in0"
    if nodes[0].op_type == "Relu":
        # Relu works in place, which crashes on memory that is not ncnn's own: one-element maxima make a copy.
        layers.append("Pooling copy 1 1 in0 copy 0=0 1=1")
        blob = "copy"
    for position, node in enumerate(nodes):
        made = "out0" if node is nodes[-1] else f"x{position}"
        match node.op_type:
            case "Conv":
                parameters = " ".join(f"{key}={value}" for key, value in _parameters(graph, node))
                layers.append(f"Convolution conv 1 1 {blob} {made} {parameters}")
            case "Add":
                layers.append(f"BinaryOp add 2 1 {blob} in1 {made} 0=0")
            case "Relu":
                layers.append(f"ReLU relu 1 1 {blob} {made}")
        blob = made
    return "\n".join(["7767517", f"{len(layers)} {len(layers)}", *layers, ""])


def _parameters(graph: Graph, node: Node) -> Iterator[tuple[int, int]]:
    """The convolution's numbered parameters; the depth axis has become channels."""
    weight, geometry = graph.constants[node.inputs[1]], Geometry.of(graph, node)
    _, top, left, _, bottom, right = geometry.pads
    yield from ((0, weight.shape[0]), (1, geometry.kernel[2]), (11, geometry.kernel[1]))
    yield from ((2, geometry.dilations[2]), (12, geometry.dilations[1]))
    yield from ((3, geometry.strides[2]), (13, geometry.strides[1]))
    yield from ((4, left), (15, right), (14, top), (16, bottom))
    yield from ((5, int(_has_bias(node))), (6, weight.size))


def _has_bias(node: Node) -> bool:
    return len(node.inputs) > 2 and bool(node.inputs[2])


def _weights(graph: Graph, node: Node) -> bytes:
    """The weights file: four bytes that say float32, the weights with depth beside channels, the bias."""
    weight = np.ascontiguousarray(graph.constants[node.inputs[1]].transpose(0, 2, 1, 3, 4))
    bias = graph.constants[node.inputs[2]].tobytes() if _has_bias(node) else b""
    return bytes(4) + weight.tobytes() + bias
