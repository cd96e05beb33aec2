"""Conditions on nodes and libraries that backends share."""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from collage_evo.backends.base import YES, Backend, BuildFailure, Built, Probe, Support, no
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.errors import OF_THE_MACHINE, CollageError, InputError, one_line
from collage_evo.extras import install
from collage_evo.graph.ir.graph import COMPOSITE, OPAQUE, Graph, Node, NodeSet, Tensor
from collage_evo.hardware.processor import this_machine
from collage_evo.multimap import firsts
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.edits import Numerics, numerics_of

if TYPE_CHECKING:
    import onnx

_SOFTMAX_OF_ONE_AXIS = 13
"""The operator set from which on a Softmax is over only its axis."""
_OTHER_FLOAT = re.compile(r"(b?float(?!32$)|complex)")
_NATIVE = re.compile(r"\.(so(\.[^/]*)?|dylib|dll|pyd)$")
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


Rule = Callable[[Graph, Node], str]
"""Why a backend does not take a node; empty if it does."""


def when(condition: Callable[[Graph, Node], object], reason: str) -> Rule:
    """The rule that refuses nodes for ``reason`` where ``condition`` holds."""
    return lambda graph, node: reason if condition(graph, node) else ""


def refused_by(rules: Mapping[str, Rule], graph: Graph, node: Node) -> str:
    """The reason of the rule for the node's operator, with the operator in front; empty if it has none."""
    rule = rules.get(node.op_type)
    reason = rule(graph, node) if rule else ""
    return f"{node.op_type}: {reason}" if reason else ""


def repeatable(graph: Graph, node: Node) -> Support:
    """Whether ``node`` computes the same numbers each time."""
    if node.op_type in _RANDOM or _drops(graph, node):
        return no(f"{node.op_type} gives other numbers each time")
    return YES


def plain(graph: Graph, node: Node, dtypes: Collection[str]) -> Support:
    """Whether a standard ``node`` has no body or randomness, and only non-empty static tensors of ``dtypes``."""
    if node.domain == COMPOSITE:
        return no(f"{node.op_type} has a body, or tensors whose shapes depend on data")
    if node.domain not in ("", "ai.onnx"):
        return no(f"operators of the domain {node.domain} are not taken")
    if not (verdict := repeatable(graph, node)):
        return verdict
    for name in filter(None, (*node.inputs, *node.outputs)):
        tensor = graph.tensors[name]
        if tensor.dtype not in dtypes:
            return no(f"tensor {name} is {tensor.dtype}; only {', '.join(sorted(dtypes))} are taken")
        if 0 in tensor.shape:
            return no(f"tensor {name} is empty")
    return YES


def _drops(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a Dropout that is, or may be, in training."""
    if node.op_type != "Dropout" or not present(node, 2):
        return False
    training = constant(graph, node, 2)
    return training is None or bool(training)


def data_inputs(graph: Graph, node: Node) -> list[Tensor]:
    """The inputs that are present and not constant."""
    return [graph.tensors[name] for name in node.inputs if name and name not in graph.constants]


def constant(graph: Graph, node: Node, position: int) -> np.ndarray | None:
    """The constant that ``node`` has as its input number ``position``, or None."""
    if position >= len(node.inputs):
        return None
    return graph.constants.get(node.inputs[position])


def present(node: Node, position: int) -> bool:
    """Whether the optional input number ``position`` is given."""
    return position < len(node.inputs) and bool(node.inputs[position])


def by_whole_numbers(graph: Graph, node: Node) -> bool:
    """Whether a Resize repeats each element equally often: by 2.4 two become four too, but unequally."""
    before, after = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    scales = constant(graph, node, 2) if present(node, 2) else None
    return not np.mod(after, before).any() and (scales is None or not np.mod(scales, 1).any())


def over_several_axes(graph: Graph, node: Node) -> bool:
    """Whether a Softmax is over several axes: before operator set 13 it is over its axis and all behind it."""
    rank = len(graph.tensors[node.inputs[0]].shape)
    return graph.opset < _SOFTMAX_OF_ONE_AXIS and int(node.attributes.get("axis", 1)) % max(rank, 1) != rank - 1


def dtype_of(graph: Graph, name: str) -> str:
    """The element type of a tensor, also of one with an unknown number of axes; empty where it is not known."""
    from collage_evo.graph.check.scopes import exact_values  # serving does not need it

    return exact_values(graph).dtype(name)


def other_floats(graph: Graph, node: Node) -> str:
    """Why a library that is right only in float32, among floats, must not run ``node``; empty if it may.

    OpenVINO computes float64 in float32, and float16 without overflow. TVM computes Erf of float64 in float32, and
    sums of float16 in float16. Conversion at the model's border is exact.
    """
    if node.op_type in ("Shape", "Size"):
        return ""
    from collage_evo.graph.check.scopes import settled  # serving does not need it

    dtypes = {name: dtype_of(graph, name) for name in (*node.inputs, *node.outputs) if name}
    others = (name for name, dtype in dtypes.items() if _OTHER_FLOAT.match(dtype) and name not in graph.constants)
    varying = next((name for name in others if not settled(graph, (name,))), None)
    if varying is None or (node.op_type == "Cast" and _at_border(graph, node.inputs[0], node.outputs[0], dtypes)):
        return ""
    return f"{node.op_type}: {varying} is {dtypes[varying]}, and of floats only float32 is right"


def _at_border(graph: Graph, read: str, made: str, dtypes: Mapping[str, str]) -> bool:
    """Whether a Cast makes float32 of an input of the model, or of float32 an output that nothing else reads."""
    if dtypes[made] == "float32":
        return read in graph.inputs
    return dtypes[read] == "float32" and made in graph.outputs and made not in graph.consumers


def casts_to_whole(graph: Graph, node: Node) -> bool:
    """Whether ``node`` casts floats to integers: libraries differ on floats that no such integer holds."""
    read, made = (dtype_of(graph, names[0]) for names in (node.inputs, node.outputs))
    return node.op_type == "Cast" and "float" in read and "int" in made


def takes_small_for_zero(graph: Graph, node: Node, vanishing: Collection[str]) -> str:
    """Why a Log of the output of ``vanishing`` operators is minus infinity; empty if ``node`` is in none.

    Such libraries return zero for the smallest numbers of float32, which is negligible anywhere else.
    """
    if _next_to(graph, node, vanishing, "Log"):
        return f"{node.op_type}: of the smallest numbers, which it takes for zero, the logarithm is lost"
    return ""


def inexact_near_zero(graph: Graph, node: Node, functions: Collection[str]) -> str:
    """Why a quotient of the values of ``functions`` near zero is wrong; empty if ``node`` is in none."""
    if _next_to(graph, node, functions, "Div"):
        return f"{node.op_type}: near zero it is not exact enough to be divided by as small a number"
    return ""


def slopes_by_channel(graph: Graph, node: Node) -> str:
    """Why a library that reads one row of slopes as slopes of channels must not run a PRelu; empty if it may."""
    if node.op_type != "PRelu":
        return ""
    values, slopes = (graph.tensors[name].shape for name in node.inputs[:2])
    row = len(slopes) == 1 and slopes != (1,) and len(values) != 2
    return "PRelu: one row of slopes is for the last axis" if row else ""


def _next_to(graph: Graph, node: Node, makers: Collection[str], reader: str) -> bool:
    """Whether ``node`` is one of ``makers`` before a ``reader`` of its output, or such a reader."""
    if node.op_type in makers:
        readers = (graph.nodes[index] for index in graph.consumers.get(node.outputs[0], ()))
        return any(one.op_type == reader and one.inputs[0] == node.outputs[0] for one in readers)
    maker = graph.producer.get(node.inputs[0]) if node.op_type == reader and node.inputs else None
    return maker is not None and graph.nodes[maker].op_type in makers


_Build = TypeVar("_Build", bound=Callable[..., Built | BuildFailure])


def returns_failures(describe: Callable[[Exception], str] = one_line) -> Callable[[_Build], _Build]:
    """Decorate ``Backend.build``: an exception of the library becomes a ``BuildFailure`` with ``describe`` of it,
    unless the operating system refuses what all pieces need.

    ``build`` does not get a model with an output that no node computes.
    """

    def decorate(build: _Build) -> _Build:
        @functools.wraps(build)
        def guarded(backend: Backend, model: onnx.ModelProto, *arguments: Any) -> Built | BuildFailure:
            if reason := _fails_to_pass_through(model):
                return BuildFailure(reason)
            try:
                return build(backend, model, *arguments)
            except Exception as error:
                if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
                    raise  # the next piece could not be built either
                # Every failure of the library is one kind of outcome here: this piece cannot be built.
                return BuildFailure(f"{backend.name}: {describe(error)}", raw=not isinstance(error, CollageError))

        return cast(_Build, guarded)

    return decorate


def _fails_to_pass_through(model: onnx.ModelProto) -> str:
    """Why ``model`` cannot be a compiled piece: an output that no node computes. Empty if there is none."""
    computed = {name for node in model.graph.node for name in node.output}
    others = [value.name for value in model.graph.output if value.name not in computed]
    return f"output {others[0]} is an input or a constant of the region" if others else ""


def lacks_instructions(*arithmetics: Arithmetic) -> str:
    """Why one of ``arithmetics`` does not run here; empty if this processor computes in all of them."""
    missing = next((one for one in arithmetics if not this_machine().computes_in(one)), None)
    return f"this processor does not compute in {missing}" if missing else ""


def written_variants(variants: Sequence[Variant], graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
    """Those of ``variants`` that have something to write into ``nodes``, and not the same as another one."""
    written = ((numerics_in(graph, nodes, variant), variant) for variant in variants)
    return tuple(firsts(((one.base, numerics), one) for numerics, one in written if numerics).values())


def numerics_in(graph: Graph, nodes: NodeSet, variant: Variant, ranges: Ranges | None = None) -> Numerics:
    """The edits of a match of ``variant``. Nodes that the ``ranges``, if given, do not allow are not in int8."""
    from collage_evo.precision.transforms.catalogue import transform_of  # serving does not need it
    from collage_evo.precision.transforms.transform import Data

    if not variant.writes or (transform := transform_of(variant.arithmetic)) is None:
        return ()
    data = Data(ranges, variant.int8_form, variant.everything)
    return numerics_of((variant.arithmetic, transform.sites(graph, nodes, data)))


def require_borders(
    backend: str, declared: Sequence[tuple[str, Sequence[int] | None]], tensors: Sequence[Tensor]
) -> None:
    """Make sure that a library's own types for a piece's inputs, or its outputs, fit the tensors that it is to get.

    Args:
        backend: its name.
        declared: the library's dtype and shape of each; an open size is negative, None is an open rank.
        tensors: to be bound to them. Opaque ones have no type to compare.

    Raises:
        InputError: there are more or fewer, or one is of another dtype or shape.
    """
    if len(declared) != len(tensors):
        raise InputError(
            f"{backend} has a region of {len(declared)} inputs or outputs, not {len(tensors)}: build it anew"
        )
    for (dtype, shape), tensor in zip(declared, tensors, strict=True):
        if tensor.dtype == OPAQUE:
            continue
        fits = shape is None or len(shape) == len(tensor.shape)
        fits = fits and all(a == b or a < 0 or b < 0 for a, b in zip(shape or (), tensor.shape, strict=False))
        if dtype != tensor.dtype or not fits:
            raise InputError(
                f"{backend} has {dtype}{list(shape or ())} where {tensor.name} is "
                f"{tensor.dtype}{list(tensor.shape)}: it takes no other, build the region anew"
            )


@functools.cache
def probe_distribution(distribution: str, extra: str, package: str = "collage-evo") -> Probe:
    """Whether a Python distribution is installed with all its native libraries.

    Nothing is imported: that would take up to a second and start the library's threads. The result is cached.

    Args:
        distribution: its name on PyPI.
        extra: the extra of ``package`` that installs it; empty where it is one of several.
        package: the distribution that has the backend.
    """
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return Probe(False, reason=f"{distribution} is not installed: {install(extra, package)}")
    # Not by its 'files': making thousands of them took a twentieth of a measuring process's start.
    listed = (row[0] for row in csv.reader((installed.read_text("RECORD") or "").splitlines()) if row)
    natives = [Path(name) for name in listed if _NATIVE.search(name)]
    missing = [path.name for path in natives if not Path(str(installed.locate_file(path))).exists()]
    if missing:
        reason = f"{distribution} {installed.version} is broken, {missing[0]} is missing: {install(extra, package)}"
        return Probe(False, installed.version, reason=reason)
    return Probe(True, installed.version)
