"""Compilation by TVM: from a model to fused loop functions, and from scheduled ones to machine code."""

from __future__ import annotations

import os
import warnings
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from collage_evo.backends.tvm.plain.piece import SHARE_ALL_CORES
from collage_evo.backends.tvm.tidy import tidy
from collage_evo.hardware.processor import level

if TYPE_CHECKING:
    import onnx


_LEVELS = {"avx2": "haswell", "avx512": "skylake-avx512", "avx512_bf16": "cooperlake"}
"""LLVM's names of the levels to which a processor can be held."""


def cpu_target(threads: int) -> Any:
    """This machine's processor, or the level it is held to, with ``threads`` of its cores, as TVM's target."""
    import tvm
    from tvm.target.codegen import llvm_get_system_cpu

    processor = _LEVELS[level()] if level() else llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": threads})


WEIGHTS = "HWIO"
"""Layout of convolutions' weights: neighbouring elements of a vector read neighbours."""


def lower_model(model: onnx.ModelProto, target: Any, half: bool = False, weights: str = WEIGHTS) -> Any:
    """The model as a Relax module of fused loop functions, not yet scheduled; images are laid out NHWC.

    Args:
        model: with tensors of fixed shapes.
        target: TVM's.
        half: whether heavy operators take float16; they accumulate in float32, and return float32 where they can.
        weights: layout of convolutions' weights.
    """
    import tvm
    from tvm import relax
    from tvm.relax.backend.cpu_generic import pipeline
    from tvm.relax.frontend.onnx import from_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_onnx(_sums_as_adds(model))
    with target:
        passes = tvm.transform.Sequential(
            [
                relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", weights]}),
                tvm.transform.module_pass(lambda module, _: tidy(module), opt_level=0),
                *([relax.transform.ToMixedPrecision(out_dtype="float32")] if half else []),
                *pipeline.library_dispatch_passes(target),
                *pipeline.legalize_passes(target),
            ]
        )
        # Also before the layout pass, so that biases are constants that it can transpose.
        return passes(tidy(module))


def compile_module(module: Any, target: Any) -> Any:
    """Scheduled functions and the calls of them as a Relax executable."""
    import tvm
    from tvm import relax
    from tvm.relax.backend.cpu_generic import pipeline

    with target:
        passes = [*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)]
        return relax.build(tvm.transform.Sequential(passes)(module), target, relax_pipeline=None)


def _sums_as_adds(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with each Sum as a chain of Adds: TVM's import of Sum defeats its layout pass."""
    import onnx

    plain = deepcopy(model)
    del plain.graph.node[:]
    for node in model.graph.node:
        if node.op_type != "Sum" or len(node.input) < 2:
            plain.graph.node.append(node)
            continue
        total = node.input[0]
        for position, term in enumerate(node.input[1:], 2):
            output = node.output[0] if position == len(node.input) else f"{node.output[0]}__sum{position}"
            plain.graph.node.append(onnx.helper.make_node("Add", [total, term], [output]))
            total = output
    return plain


def set_threads(threads: int) -> None:
    """Set TVM's pool to ``threads`` threads that the system places, before or after it has started.

    Raises:
        RuntimeError: the pool was started with fewer.
    """
    # A pool belongs to the thread that calls it; the environment applies to pools of later threads.
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ["TVM_BIND_THREADS"] = "0"
    import tvm

    cores = [str(core) for core in range(threads)]
    tvm.get_global_func("runtime.config_threadpool")(SHARE_ALL_CORES, threads, cores)
    if tvm.get_global_func("runtime.NumThreads")() != threads:
        raise RuntimeError(f"tvm's thread pool has fewer than {threads} threads in this process")
