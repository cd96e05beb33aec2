"""Building of a piece for a GPU: the files that ``load`` reads, from scheduled kernels and their calls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.codec import to_json
from collage_evo_cuda.tvm.compiler import compile_kernels
from collage_evo_cuda.tvm.program import Made, make_program
from collage_evo_cuda.tvm.schedule import schedule_kernels

HOST, KERNELS, PROGRAM, WEIGHTS = "host.so", "kernels.cubin", "program.json", "weights.npz"
FILES = (HOST, KERNELS, PROGRAM, WEIGHTS)


def build_files(module: Any, target: Any, workdir: Path, linker: str | None) -> None:
    """Compile ``module``, lowered and scheduled for ``target``, into :data:`FILES` in ``workdir``.

    Raises:
        UnavailableError, ValueError: ``module`` cannot be compiled.
    """
    host, generated = generate(module, target)
    (workdir / KERNELS).write_bytes(compile_kernels(kernel_source(host), str(target.attrs["arch"])))
    host.export_library(str(workdir / HOST), cc=linker)
    (workdir / PROGRAM).write_text(to_json(generated.program))
    weights: dict[str, Any] = {str(number): weight for number, weight in enumerate(generated.weights)}
    np.savez(workdir / WEIGHTS, **weights)


def generate(module: Any, target: Any) -> tuple[Any, Made]:
    """The host functions that launch kernels, which hold the kernels as CUDA C, and the calls of them."""
    import tvm
    from tvm import relax, tirx
    from tvm.relax.backend.cuda import pipeline

    with target, _kernels_as_source():
        planned = [*pipeline.dataflow_lower_passes(target), relax.transform.StaticPlanBlockMemory()]
        module = tvm.transform.Sequential(planned)(module)
        generated = make_program(module)
        copies = {name: _copy(view.shape, view.dtype) for name, view in generated.copies}
        functions = {v.name_hint: f for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
        named = {name: f.with_attr("global_symbol", name) for name, f in {**functions, **copies}.items()}
        kernels = schedule_kernels(tvm.IRModule(named), target)
        return tvm.tirx.build(kernels, target=target, pipeline="s_tir"), generated


def kernel_source(host: Any) -> str:
    """The CUDA C of all kernels that ``host`` launches."""
    return "".join(module.inspect_source("cuda") for module in host.imports_)


def _copy(shape: tuple[int, ...], dtype: str) -> Any:
    from tvm import te

    source = te.placeholder(shape or (1,), dtype, name="source")
    return te.create_prim_func([source, te.compute(source.shape, lambda *at: source(*at), name="target")])


@contextlib.contextmanager
def _kernels_as_source() -> Iterator[None]:
    """Keep TVM from compiling kernels itself where its CUDA runtime is loaded, and from asking a GPU for its kind."""
    name = "TVM_COMPILE_FORCE_FALLBACK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
