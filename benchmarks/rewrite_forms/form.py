"""Registers candidates: functions that write a subgraph in one of several equal forms; and what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from corpus.entry import load_inputs

from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.graph.extract import canonical_names, extract
from collage_evo.graph.ir import Graph
from collage_evo.graph.load import ModelFile
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.read import build_graph
from collage_evo.models.builder import OPSET, Builder
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.transforms.catalogue import transform_of
from collage_evo.precision.transforms.edits import edits_of
from collage_evo.precision.transforms.piece import EditedRegion
from collage_evo.precision.transforms.rewritten import Rewritten
from collage_evo.precision.transforms.transform import Data
from collage_evo.rewrites.catalogue import REWRITES, rewrite_named
from collage_evo.rewrites.rewrite import Rewrite, Sites
from collage_evo.rewrites.write import write_rewrites
from collage_evo.testing.cases.case import weight

Make = Callable[..., Sequence[str] | str]
ORIGINAL = "original"
AS_WRITTEN = "as-written"
"""A whole model as its file has it, beside the normalised one."""
CONTRIBUTED = "contributed"
"""A form with an operator of ONNX Runtime's own."""


class _Open(Builder):
    """A builder whose parts can be had without their types."""

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        return self._nodes

    @property
    def constants(self) -> Sequence[onnx.TensorProto]:
        return self._initializers


@dataclass(frozen=True)
class Candidate:
    """A rewrite to be tried: ``make(builder, form, *shape)`` writes the subgraph and returns its outputs."""

    name: str
    forms: tuple[str, ...]
    """The other forms: a rewrite of the catalogue by its name, or one that ``make`` writes beside ``original``."""
    shapes: Mapping[str, tuple[Any, ...]]
    make: Make
    opsets: Mapping[str, int]

    def model(self, shape: str, form: str) -> onnx.ModelProto:
        """The subgraph in ``form`` at the shape called ``shape``; equal for all forms."""
        if form in {rewrite.name for rewrite in REWRITES}:
            return rewritten(build_graph(self.model(shape, ORIGINAL)), rewrite_named(form))
        builder = _Open(self.name)
        outputs = self.make(builder, form, *self.shapes[shape])
        names = [outputs] if isinstance(outputs, str) else outputs
        if form == CONTRIBUTED:
            # Types of these operators are not inferred: outputs have those of the original.
            model = self.model(shape, ORIGINAL)
            del model.graph.value_info[:], model.graph.node[:], model.graph.initializer[:]
            model.graph.node.extend(builder.nodes)
            model.graph.initializer.extend(builder.constants)
            for value, name in zip(model.graph.output, names, strict=True):
                value.name = name
            model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
            return model
        return builder.model(*names, opset=self.opsets.get(form, OPSET))


CANDIDATES: dict[str, Candidate] = {}


def rewritten(graph: Graph, rewrite: Rewrite) -> onnx.ModelProto:
    """``graph`` with the rewrite at all of its sites.

    Raises:
        ValueError: it declines the graph.
    """
    return write_rewrites(graph, graph.all_nodes, _sites(graph, rewrite))


def in_int8(graph: Graph, form: str, feeds: Mapping[str, Any], variant: Variant) -> onnx.ModelProto:
    """``graph`` as it is or with a rewrite of the catalogue at all of its sites, and all that ``variant`` quantises.

    Raises:
        ValueError: the rewrite declines the graph.
    """
    data = Data(dict(calibrate(graph, [feeds])), variant.int8_form, variant.everything)
    sites = () if form == ORIGINAL else _sites(graph, rewrite_named(form))
    chosen, outside = transform_of(Arithmetic.INT8), graph.all_nodes
    assert chosen is not None
    able = 0
    for site in sites:
        outside &= ~site[1]
        part = Rewritten.of(graph, site[1], (site,), data.ranges or {})
        if part.able(Arithmetic.INT8, part.wrote[0], data.int8_form):
            able |= site[1]
    numerics = (Arithmetic.INT8, able | chosen.sites(graph, outside, data))
    return EditedRegion(graph, graph.all_nodes, edits_of(numerics, *sites), data).model()


def _sites(graph: Graph, rewrite: Rewrite) -> Sites:
    """As many sites of the rewrite as do not overlap.

    Raises:
        ValueError: it declines the graph.
    """
    taken, sites = 0, []
    for site in rewrite.sites(graph):
        if not taken & site:
            taken |= site
            sites.append((rewrite.name, site))
    if not sites:
        raise ValueError(f"{rewrite.name} declines {graph.model.graph.name}")
    return tuple(sites)


class WholeModel:
    """A model as it is searched, as its file has it, and with one rewrite of the catalogue wherever it applies.

    All forms take and give their tensors in one order. ``feeds`` are the inputs under the names that the form
    ``original`` has for them: those of ``NAME.npz`` beside the file, else random ones.
    """

    def __init__(self, source: str) -> None:
        self.name = source
        own = [load_inputs(Path(source))] if Path(source).with_suffix(".npz").is_file() else []
        prepared = prepare_model(ModelFile(source), {}, reference_inputs=1, threads=1, feeds=own, any_shapes=True)
        self._graph = searchable(prepared, threads=1).graph
        inputs, outputs = self._graph.boundary(self._graph.all_nodes)
        names = canonical_names(self._graph, self._graph.all_nodes)
        self.feeds = {names[name]: prepared.references[0][0][name] for name in inputs}
        self._file = prepared.original
        alike = _in_order(self._file.graph.input, inputs) and _in_order(self._file.graph.output, outputs)
        found = tuple(rewrite.name for rewrite in REWRITES if any(rewrite.sites(self._graph)))
        self.forms = (AS_WRITTEN, *found) if alike else found
        self.shapes = ("whole",)

    def model(self, shape: str, form: str) -> onnx.ModelProto:
        """The model in ``form``."""
        if form == AS_WRITTEN:
            return self._file
        if form == ORIGINAL:
            return extract(self._graph, self._graph.all_nodes)
        return rewritten(self._graph, rewrite_named(form))


def _in_order(values: MutableSequence[onnx.ValueInfoProto], names: Sequence[str]) -> bool:
    """Bring ``values`` into the order of ``names``; False where they are others."""
    by_name = {value.name: value for value in values}
    if by_name.keys() != set(names):
        return False
    ordered = [by_name[name] for name in names]
    del values[:]
    values.extend(ordered)
    return True


def candidate(
    forms: Sequence[str], shapes: Mapping[str, tuple[Any, ...]], opsets: Mapping[str, int] | None = None
) -> Callable[[Make], Make]:
    """Register a function under its name, with hyphens."""

    def register(make: Make) -> Make:
        name = make.__name__.replace("_", "-")
        CANDIDATES[name] = Candidate(name, tuple(forms), shapes, make, opsets or {})
        return make

    return register


def conv(b: Builder, x: str, w: np.ndarray, bias: np.ndarray | None = None, **attributes: Any) -> str:
    """A convolution by the kernel ``w``."""
    inputs = [x, b.const(w)] + ([] if bias is None else [b.const(bias)])
    return b.op("Conv", *inputs, kernel_shape=list(w.shape[2:]), **attributes)


def reshape(b: Builder, x: str, *shape: int) -> str:
    return b.op("Reshape", x, b.ints(*shape))


def cut(
    b: Builder, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> str:
    """A Slice."""
    return b.op("Slice", x, *(b.ints(*values) for values in (starts, ends, axes, steps)))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Like ``weight``, but another for another ``seed``."""
    return weight(*shape) if not seed else np.roll(weight(*shape).reshape(-1), 7919 * seed).reshape(shape)
