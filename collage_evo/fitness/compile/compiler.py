"""Compiler of regions and whole models through their backends, with results cached by content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from collage_evo.backends.base import Backend, BuildFailure
from collage_evo.backends.capabilities import TakesOpenShapes, by_values_reason, closed_reason, refuses_shapes
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.files import files_in
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.genome.failure import Failed, Failure, Fault
from collage_evo.graph.check.indices import (
    IndexVerdict,
    indices_of_model,
    joined,
    limits_of,
    limits_of_32_bits,
    limits_of_32_bits_of_model,
    stray_index,
)
from collage_evo.graph.check.scopes import operators
from collage_evo.graph.convert.extract import content_hash
from collage_evo.graph.convert.origin import node_names
from collage_evo.graph.convert.read import build_graph, declared_tensor
from collage_evo.graph.ir.graph import Graph, Tensor, members
from collage_evo.graph.ir.weights import inlined
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.files import digest
from collage_evo.graph.normalise.outputs import computed_outputs
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Placement, Region
from collage_evo.precision.quantise.ranges import read_ranges
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.piece import EditedRegion
from collage_evo.precision.transforms.transform import Data
from collage_evo.runtime.program import Piece, Program


@dataclass(frozen=True)
class Compiler:
    """Builds for one target, through the cache. What cannot be built raises ``Failed``.

    ``ranges``: file of the calibrated ranges, which are read when a region has quantisers that need them.
    """

    target: Target
    cache: PieceCache
    ranges: Path | None = None

    @cached_property
    def _ranges(self) -> Ranges:
        return read_ranges(self.ranges) if self.ranges is not None and self.ranges.exists() else {}

    def region(self, graph: Graph, region: Region) -> Piece:
        """Compile one region of ``graph``."""
        strays = (stray_index(graph, graph.nodes[index]) for index in members(region.nodes))
        if not _guarded(region) and (stray := next(filter(None, strays), "")):
            raise _declined(f"{region.backend}: {stray}")
        inputs, outputs = graph.boundary(region.nodes)
        sides = ([graph.tensors[name].opened for name in names] for names in (inputs, outputs))
        by_values = by_values_reason(get_backend(region.backend), graph, region.nodes)
        if problem := by_values or _open_problem(region.backend, *sides):
            raise _declined(problem)
        names = tuple(name for i in members(region.nodes) for name in graph.nodes[i].names)
        try:
            key, make = self._content(graph, region)
        except InputError as error:
            raise Failed(Failure(Fault.BUILD, str(error))) from error
        path, version = self._build(region.backend, region.variant, key, make)
        return Piece(path, region.backend, region.variant, inputs, outputs, names, version)

    def model(self, graph: Graph, region: Region) -> onnx.ModelProto:
        """The ONNX model that is compiled for ``region``.

        Raises:
            InputError: its quantisers or rewrites do not fit.
        """
        return self._content(graph, region)[1]()

    def _content(self, graph: Graph, region: Region) -> tuple[str, Callable[[], onnx.ModelProto]]:
        """The content that identifies the region's model in the cache, and the model."""
        ranges = self._ranges if region.numerics else None
        data = Data(ranges, get_backend(region.backend).int8_form(region.variant))
        edited = EditedRegion(graph, region.nodes, region.edits, data)
        return f"{content_hash(graph, region.nodes)} {edited.key}".rstrip(), edited.model

    def placement(self, graph: Graph, placement: Placement) -> Program:
        """Compile every region of a placement."""
        pieces = tuple(self.region(graph, region) for region in placement.regions)
        each_limit = [limits_of(graph, region.nodes) for region in placement.regions if not _guarded(region)]
        each_limit += [limits_of_32_bits(graph, region.nodes) for region in placement.regions if _bits(region) == 32]
        limits = joined(each_limit)
        return Program(pieces, graph.inputs, graph.outputs, _moving(graph, pieces), limits)

    def whole(self, model: onnx.ModelProto, backend: str, variant: str) -> Program:
        """Compile the user's model, unchanged, as one piece of one backend.

        The piece excludes outputs that are inputs: the program passes them through.
        """
        input_tensors = [declared_tensor(name, value.type) for name, value in given_inputs(model).items()]
        output_tensors = [declared_tensor(value.name, value.type) for value in model.graph.output]
        if problem := _open_problem(backend, input_tensors, output_tensors):
            raise _declined(problem)
        inputs, outputs = tuple(t.name for t in input_tensors), tuple(t.name for t in output_tensors)
        computed = tuple(name for name in outputs if name not in inputs)
        if not computed:
            raise Failed(Failure(Fault.BUILD, f"{backend}: every output is an input, there is nothing to run"))
        engine = get_backend(backend)
        indices = IndexVerdict() if engine.guards(engine.variant(variant)) else indices_of_model(model)
        if indices.stray:
            raise _declined(f"{backend}: {indices.stray}")
        proven = not refuses_shapes(engine) and not all(one.static for one in input_tensors)
        if reason := (_known_wrong_open if proven else _known_wrong)(engine, model):
            raise _declined(f"{backend}: {reason}")
        path, version = self._build(backend, variant, digest(model), lambda: computed_outputs(model))
        piece = Piece(path, backend, variant, inputs, computed, node_names(model), version)
        limits = [indices.limits]
        if engine.bits(engine.variant(variant)) == 32:
            limits.append(limits_of_32_bits_of_model(model))
        tensors = {t.name: t for t in (*output_tensors, *input_tensors)}
        return Program((piece,), inputs, outputs, tensors, joined(limits))

    def _build(
        self, name: str, variant: str, content: str, make: Callable[[], onnx.ModelProto]
    ) -> tuple[Path, str]:
        backend = get_backend(name)
        version = backend.version_of(backend.variant(variant))
        builder = backend.builder(backend.variant(variant))
        key = hashlib.sha256(self.target.key(name, version, builder.name, content).encode()).hexdigest()[:32]
        if cached := self.cache.get(key):
            return cached, version
        work = self.cache.workdir()
        try:
            model = make() if backend.maps_weights else inlined(make())
            result = backend.build(model, self.target, builder, work)
        except InputError as error:
            result = BuildFailure(str(error))
        if isinstance(result, BuildFailure):
            self.cache.abandon(work)
            raise Failed(unbuilt(result))
        for surplus in files_in(work).keys() - result.files:
            (work / surplus).unlink()
        return self.cache.put(key, work), version


def unbuilt(failure: BuildFailure) -> Failure:
    """The failure of a model that a backend could not compile."""
    declined = Fault.DECLINED if failure.declined else Fault.BUILD
    fault = Fault.NEEDLESS if failure.needless else declined
    return Failure(fault, detail=failure.reason) if failure.raw else Failure(fault, failure.reason)


def _declined(reason: str) -> Failed:
    return Failed(Failure(Fault.DECLINED, reason))


def _open_problem(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """Why a backend cannot take a piece with these inputs and outputs, some of them not static; empty if it can."""
    backend = get_backend(name)
    open_inputs, open_outputs = ([one.name for one in side if not one.static] for side in (inputs, outputs))
    if open_inputs and (lacks := closed_reason(backend)):
        return f"{name}: the shape of the input {open_inputs[0]} is open, and {lacks}"
    if open_outputs and not isinstance(backend, TakesOpenShapes):
        return f"{name}: the shape of {open_outputs[0]} depends on data, which it does not take"
    return ""


def _guarded(region: Region) -> bool:
    backend = get_backend(region.backend)
    return backend.guards(backend.variant(region.variant))


def _bits(region: Region) -> int:
    backend = get_backend(region.backend)
    return backend.bits(backend.variant(region.variant))


def _moving(graph: Graph, pieces: Sequence[Piece]) -> Mapping[str, Tensor]:
    names = {name for piece in pieces for name in (*piece.inputs, *piece.outputs)}
    return {name: graph.tensors[name].opened for name in sorted(names | set(graph.inputs))}


def _known_wrong_open(backend: Backend, model: onnx.ModelProto) -> str:
    """Why the backend does not take a whole model with open shapes, in which all tensors' types are declared."""
    graph = build_graph(model)
    return by_values_reason(backend, graph, graph.all_nodes) or next(
        (reason for node in graph.nodes if (reason := backend.known_wrong(graph, node))), ""
    )


def _known_wrong(backend: Backend, model: onnx.ModelProto) -> str:
    """Why the backend's library computes an operator of ``model`` wrongly; empty if none is known.

    An operator that is wrong for some values of an input may have constants there that only folding shows.
    """

    def first(model: onnx.ModelProto) -> str:
        return next((reason for graph, node in operators(model) if (reason := backend.known_wrong(graph, node))), "")

    if reason := first(model):
        from collage_evo.graph.normalise.normalise import Rules, normalise  # half of what a fork server imports

        with suppress(InputError):
            return first(normalise(model, Rules.SAME_OPSET))
    return reason
