"""Normalisation: an equal model in the plain form that the search works on.

In that form shapes are static, constants are initializers, BatchNormalization and per-channel scales sit in
the convolution before them, layer normalisations are one operator, rows are along one axis, images of one
column are images of one row, and dead or idle operators are gone. Only standard operators are used.
"""

from __future__ import annotations

import enum
from pathlib import Path

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnxscript.optimizer import fold_constants_ir, optimize_ir
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.rules.common import (
    fuse_batchnorm_into_conv_rule,
    fuse_batchnorm_into_conv_transpose_rule,
    fuse_batchnorm_into_gemm_rule,
)
from onnxscript.version_converter import ConvertVersionPass

from collage_evo.errors import InputError, one_line
from collage_evo.graph.convert.static import NONDETERMINISTIC
from collage_evo.graph.ir.weights import light, weight_files
from collage_evo.graph.normalise import affine, layer_norm
from collage_evo.graph.normalise.flat_rows import FlatRows
from collage_evo.graph.normalise.outputs import compute_constant_outputs, passed_through
from collage_evo.graph.normalise.row_images import RowImages

MIN_OPSET = 18
_FOLD_LIMIT = 1 << 28
"""Elements in the largest constant that folding may make: 1 GiB of float32."""
_NOT_FOLDED = {"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"}
"""Folding these would hide from the backends that a weight is quantised."""


class Rules(enum.Enum):
    """How much is rewritten, from most to least."""

    ALL = "all"
    NO_FUSION = "no fusion of neighbouring layers"
    SAME_OPSET = "no fusion, the file's own operator set"
    NONE = "constants only"


def normalise(model: onnx.ModelProto, rules: Rules = Rules.ALL) -> onnx.ModelProto:
    """An equal model in the form above; ``model`` itself does not change.

    Raises:
        InputError: the model is not valid ONNX, or uses what the passes cannot read.
    """
    try:
        graph = ir.from_proto(model)
        _read_placed(graph.graph)
        through = passed_through(model.graph)
        _leave_out_outputs(graph, through)
        _simplify(graph, rules)
        _name_outputs(graph, [value.name for value in model.graph.output if value.name not in through])
        plain = ir.to_proto(graph)
        _place_again(plain.graph)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the model cannot be normalised: {one_line(error)}") from error
    compute_constant_outputs(plain.graph)
    for position, value in enumerate(model.graph.output):
        if value.name in through:
            plain.graph.output.insert(position, value)
    _leave_out_empty_inputs(plain.graph)
    return light(plain)


def _read_placed(graph: ir.Graph) -> None:
    """Give weights in files of this process their full paths: in a base directory onnx_ir reads no file with several
    hard links, as those of a run have."""
    for value in graph.initializers.values():
        placed = value.const_value
        if isinstance(placed, ir.ExternalTensor):
            path = weight_files().directory / placed.location
            value.const_value = ir.ExternalTensor(
                path, placed.offset, placed.length, placed.dtype, shape=placed.shape, name=placed.name
            )


def _place_again(graph: onnx.GraphProto) -> None:
    """Undo :func:`_read_placed`."""
    for tensor in graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = Path(entry.value).name


def _simplify(model: ir.Model, rules: Rules) -> None:
    before: list[ir.passes.PassBase] = [
        passes.InlinePass(), passes.RemoveInitializersFromInputsPass(), passes.TopologicalSortPass()
    ]
    if rules in (Rules.ALL, Rules.NO_FUSION) and model.opset_imports.get("", MIN_OPSET) < MIN_OPSET:
        before.append(ConvertVersionPass(MIN_OPSET, fallback=True))
    after: list[ir.passes.PassBase] = [
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.OutputFixPass(),
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.TopologicalSortPass(),
        passes.NameFixPass(),
    ]
    if rules is not Rules.NONE:
        before.append(passes.ShapeInferencePass(strict_mode=False))
        after.insert(0, passes.IdentityEliminationPass())
    after.append(passes.ShapeInferencePass(strict_mode=False))
    after.append(passes.ClearMetadataAndDocStringPass())
    ir.passes.Sequential(*before)(model)
    if rules is not Rules.NONE:
        # The optimiser folds constants and applies its own rewrite rules.
        fold = optimize_ir if rules is Rules.ALL else fold_constants_ir
        fold(
            model,
            onnx_shape_inference=False,
            input_size_limit=_FOLD_LIMIT,
            output_size_limit=_FOLD_LIMIT,
            should_fold=_should_fold,
        )
    if rules is Rules.ALL:
        fuse = RewritePass(
            [
                *affine.rules(),
                *layer_norm.rules(),
                fuse_batchnorm_into_conv_rule,
                fuse_batchnorm_into_conv_transpose_rule,
                fuse_batchnorm_into_gemm_rule,
            ]
        )
        ir.passes.PassManager([fuse, passes.RemoveUnusedNodesPass()], steps=8, early_stop=True)(model)
        after += [FlatRows(), RowImages(), passes.NameFixPass()]
    ir.passes.Sequential(*after)(model)


def _leave_out_empty_inputs(graph: onnx.GraphProto) -> None:
    """Remove the empty ``roi`` or ``scales`` of a Resize, by which operator sets 11 and 12 mark absent ones."""
    empty = {tensor.name for tensor in graph.initializer if 0 in tensor.dims}
    for node in graph.node:
        if node.op_type == "Resize" and node.domain in ("", "ai.onnx"):
            for position in range(1, len(node.input)):
                if node.input[position] in empty:
                    node.input[position] = ""


def _leave_out_outputs(model: ir.Model, names: set[str]) -> None:
    remaining = [value for value in model.graph.outputs if value.name not in names]
    model.graph.outputs.clear()
    model.graph.outputs.extend(remaining)


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
    return node.op_type not in _NOT_FOLDED and node.op_type not in NONDETERMINISTIC
