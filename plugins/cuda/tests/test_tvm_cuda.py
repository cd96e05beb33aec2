"""TVM on CUDA without a GPU: what is generated, what kernels compute on stand-ins, what is said where it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.backends.tvm.compile import lower_model
from collage_evo.backends.tvm.records import RECORDS, freeze_best
from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.testing.cases import CASES
from collage_evo_cuda.libraries.tvm import Tvm
from collage_evo_cuda.tvm import compiler, schedule
from collage_evo_cuda.tvm.build import FILES, generate, kernel_source
from collage_evo_cuda.tvm.program import INPUT, OUTPUT, Made, Program
from collage_evo_cuda.tvm.schedule import default_schedule, thread_for_each_sum
from collage_evo_cuda.tvm.target import WEIGHTS, capability_of, gpu_target
from cuda_kernels import build_libraries
from cuda_kernels.run_cases import STREAM
from stand_in import FakeCuda
from tests.backends.test_tvm_tune import write_records

ROUNDING = 1e-5
HALF_ROUNDING = 4e-3
COMPUTED = ("shuffle_unit", "conv_grouped", "matmul_row", "softmax_attention", "max_pool_ceil_pads", "reshape_image")
"""Convolutions grouped and not, products, sums over threads, joins, turns, and an output that no kernel makes."""


def gpu(capability: str) -> Target:
    """Some GPU of that compute capability, which is not here."""
    return Target("cuda", accelerator=f"some GPU, compute capability {capability}, CUDA 13.0")


def generated(case: str, capability: str = "9.0", half: bool = False) -> tuple[Any, Made]:
    """The host functions and the program of a case."""
    target = gpu_target(gpu(capability))
    return generate(lower_model(CASES[case](), target, half, WEIGHTS), target)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    build_libraries(folder)
    return folder


def outcomes(stand_ins: Path, variant: str, *cases: str) -> list[dict[str, Any]]:
    """Of ``run_cases`` in a process that finds the stand-ins where CUDA's libraries would be."""
    command = [sys.executable, "-m", "cuda_kernels.run_cases", variant, *cases]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(stand_ins)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def computed(stand_ins: Path) -> list[dict[str, Any]]:
    return outcomes(stand_ins, "cuda", *COMPUTED)


def test_generated_kernels_compute_what_they_should(computed: list[dict[str, Any]]) -> None:
    assert [one["case"] for one in computed] == list(COMPUTED)
    for one in computed:
        assert one.get("error", 1.0) < ROUNDING, one


def test_a_call_only_launches_kernels_on_the_arrays_stream(computed: list[dict[str, Any]]) -> None:
    assert computed[0]["launches"] > 1
    for one in computed:
        assert one["streams"] == [STREAM]
        assert one["memory_calls"] == 0  # nothing allocated, freed or waited for


def test_products_in_float16_are_summed_in_float32(stand_ins: Path) -> None:
    (one,) = outcomes(stand_ins, "cuda-f16", "gemm_rows")
    assert ROUNDING < one["error"] < HALF_ROUNDING
    source = kernel_source(generated("gemm_rows", half=True)[0])
    product = next(line for line in source.splitlines() if "__global__" in line and "matmul" in line)
    assert "half* __restrict__" in product
    assert "half2 matmul" not in source  # the sum's registers


@pytest.mark.parametrize("capability", ["8.0", "9.0"])
def test_code_is_generated_without_a_gpu(capability: str) -> None:
    assert gpu_target(gpu(capability)).attrs["arch"] == "sm_" + capability.replace(".", "")
    host, made = generated("residual_block", capability)
    source = kernel_source(host)
    for step in made.program.steps:
        assert f" {step.function}_kernel(" in source
    assert "__shared__" in source  # convolutions share what they read among threads
    assert "threadIdx.x" in source


def of_name(case: str, name: str) -> tuple[Any, Any]:
    """One function of a case, not scheduled, and what it is for."""
    target = gpu_target(gpu("9.0"))
    return lower_model(CASES[case](), target, weights=WEIGHTS)[name], target


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("conv_depthwise", "fused_conv2d_add"),
        ("conv_grouped", "fused_conv2d_add"),
        ("max_pool_behind_conv", "max_pool2d"),
    ],
)
def test_each_short_sum_has_a_thread_whatever_the_shape(case: str, name: str) -> None:
    """128 sums are whole rows of the image in the first alone."""
    assert thread_for_each_sum(*of_name(case, name)) is not None


def test_the_next_rule_is_taken_where_one_of_tvm_stumbles() -> None:
    from tvm.s_tir.dlight.gpu import Transpose

    function, target = of_name("squeeze_excite", "transpose")
    with pytest.raises(ValueError, match="Cannot use"):
        Transpose().apply(function, target, False)
    assert "threadIdx.x" in default_schedule(function, target).mod.script()


def test_a_mistake_in_our_own_rule_is_not_taken_for_a_misfit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: Any, target: Any) -> Any:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(schedule, "thread_for_each_sum", broken)
    with pytest.raises(RuntimeError, match="a mistake"):
        default_schedule(*of_name("conv_grouped", "fused_conv2d_add"))


def test_images_are_turned_at_the_borders_only() -> None:
    _, made = generated("conv_relu")
    assert ["transpose" in step.function for step in made.program.steps] == [True, False, True]


def test_outputs_are_written_in_place_and_programs_are_read_back() -> None:
    _, made = generated("two_outputs_in_a_row")
    views = [view for step in made.program.steps for view in step.tensors]
    assert {view.index for view in views if view.kind == OUTPUT} == {0, 1}
    assert any(view.kind == INPUT for view in views)
    assert not made.copies
    assert from_json(to_json(made.program), Program) == made.program


def test_without_a_compiler_the_reason_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    backend = Tvm()
    assert "nvidia-cuda-nvrtc" in backend.declines(backend.variant("cuda"))
    assert backend.declines(backend.variant("default")) == ""
    built = backend.build(CASES["relu"](), gpu("9.0"), backend.variant("cuda"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert "nvidia-cuda-nvrtc" in built.reason


def test_a_capability_that_the_compiler_has_dropped_is_declined(
    monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeCuda
) -> None:
    monkeypatch.setattr(compiler, "find_compiler", lambda: compiler.Nvcc(Path("nvcc")))
    monkeypatch.setattr(compiler, "find_runtime", lambda: Path("libcudart.so.13"))
    monkeypatch.setattr(compiler, "oldest_served", lambda: (7, 5))
    with fake_cuda.used(cuda_capability="7.0"):
        assert "needs compute capability 7.5, this GPU has 7.0" in compiler.unusable()
    with fake_cuda.used(cuda_capability="9.0"):
        assert compiler.unusable() == ""


def test_a_target_of_unknown_capability_is_refused() -> None:
    assert capability_of(gpu("12.1")) == (12, 1)
    with pytest.raises(InputError, match="compute capability"):
        capability_of(Target("cuda", accelerator="some GPU"))


@pytest.mark.skipif(compiler.find_compiler() is None, reason="no CUDA compiler here")
@pytest.mark.parametrize("variant", ["cuda", "cuda-f16"])
def test_a_piece_is_compiled_to_machine_code(variant: str, tmp_path: Path) -> None:
    backend = Tvm()
    backend.build(CASES["softmax_row"](), gpu("9.0"), backend.variant(variant), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert (tmp_path / "kernels.cubin").read_bytes().startswith(b"\x7fELF")


def test_tuned_variants_say_their_device(tmp_path: Path) -> None:
    write_records(tmp_path / "cpu", {"a": [0.003, 0.002]})
    write_records(tmp_path / "gpu", {"a": [0.003, 0.002]})
    path = tmp_path / "gpu" / RECORDS
    path.write_text(path.read_text().replace("{}", '{"kind": "cuda"}'))
    backend = Tvm()
    for place, device in (("cpu", "cpu"), ("gpu", "cuda")):
        name = freeze_best(tmp_path / place, frozenset("a"), tmp_path / "frozen" / place)
        assert backend.variant(name).device == device
