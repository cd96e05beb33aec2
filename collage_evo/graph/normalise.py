"""Brings a model into the form the search works on: takes a ModelProto, gives a plainer one that is equal.

In that form shapes are static, constants are initializers, BatchNormalization and per-channel scales sit in
the convolution before them, and dead or idle operators are gone. Only standard operators are used.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnxscript.optimizer import optimize_ir
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.rules.common import (
    fuse_batchnorm_into_conv_rule,
    fuse_batchnorm_into_conv_transpose_rule,
    fuse_batchnorm_into_gemm_rule,
)
from onnxscript.version_converter import ConvertVersionPass

from collage_evo.errors import InputError, one_line
from collage_evo.graph import affine
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.reference import Reference, relative_error

MIN_OPSET = 18
_FOLD_LIMIT = 1 << 28
"""Elements in the largest constant that folding may make: 1 GiB of float32."""
_KEPT = {"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"}
"""Folding these would hide from the backends that a weight is quantised."""


def normalise(model: onnx.ModelProto) -> onnx.ModelProto:
    """An equal model in the form above; ``model`` itself stays as it is.

    Raises:
        InputError: the model is not valid ONNX, or uses what the passes cannot read.
    """
    try:
        graph = ir.from_proto(model)
        _simplify(graph)
        _name_outputs(graph, [value.name for value in model.graph.output])
        return ir.to_proto(graph)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the model cannot be normalised: {one_line(error)}") from error


def _simplify(model: ir.Model) -> None:
    steps: list[ir.passes.PassBase] = [
        passes.InlinePass(),
        passes.RemoveInitializersFromInputsPass(),
        passes.TopologicalSortPass(),
    ]
    if model.opset_imports.get("", MIN_OPSET) < MIN_OPSET:
        steps.append(ConvertVersionPass(MIN_OPSET, fallback=True))
    steps.append(passes.ShapeInferencePass(strict_mode=False))
    ir.passes.Sequential(*steps)(model)
    optimize_ir(
        model,
        onnx_shape_inference=False,
        input_size_limit=_FOLD_LIMIT,
        output_size_limit=_FOLD_LIMIT,
        should_fold=_should_fold,
    )
    fuse = RewritePass(
        [
            *affine.rules(),
            fuse_batchnorm_into_conv_rule,
            fuse_batchnorm_into_conv_transpose_rule,
            fuse_batchnorm_into_gemm_rule,
        ]
    )
    ir.passes.PassManager([fuse, passes.RemoveUnusedNodesPass()], steps=8, early_stop=True)(model)
    ir.passes.Sequential(
        passes.IdentityEliminationPass(),
        passes.OutputFixPass(),
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.TopologicalSortPass(),
        passes.NameFixPass(),
        passes.ShapeInferencePass(strict_mode=False),
        passes.ClearMetadataAndDocStringPass(),
    )(model)


def _name_outputs(model: ir.Model, names: list[str]) -> None:
    """Give the outputs their names back: merging equal outputs leaves some under another name."""
    outputs = list(model.graph.outputs)
    if [value.name for value in outputs] == names:
        return
    for position, value in enumerate(value for node in model.graph for value in node.outputs):
        if value.name in names:
            value.name = f"{value.name}_moved_{position}"
    for value, name in zip(outputs, names, strict=True):
        value.name = name


def _should_fold(node: ir.Node) -> bool:
    return node.op_type not in _KEPT


def check_same_outputs(
    original: onnx.ModelProto,
    normalised: onnx.ModelProto,
    seeds: Iterable[int] = (0,),
    tolerance: float = 1e-4,
    threads: int = 1,
) -> float:
    """The largest relative error (2-norm) of ``normalised`` against ``original`` over random inputs.

    Raises:
        InputError: the error is over ``tolerance``, or a model cannot be run, or gives nan or infinity.
    """
    references = [Reference(original, threads), Reference(normalised, threads)]
    worst = 0.0
    for seed in seeds:
        feeds = random_inputs(normalised, seed)
        expected, actual = (reference.run(feeds) for reference in references)
        if not relative_error(expected, expected).relative == 0.0:
            raise InputError(
                "the model gives nan or infinity on random inputs: its results cannot be checked"
            )
        worst = max(worst, relative_error(actual, expected).relative)
    if worst > tolerance:
        raise InputError(
            f"normalising changed the model's outputs (relative error {worst:.2g} > {tolerance:.2g}): "
            "simplify or export it again at opset 18"
        )
    return worst
