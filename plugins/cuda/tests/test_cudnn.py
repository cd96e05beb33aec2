"""The cuDNN backend emits its plans as the frontend takes them, and runs them on the device without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fake_cudnn
from collage_evo.backends import checks
from collage_evo.backends.base import BuildFailure, Built, Probe, Target
from collage_evo.backends.variants import Variant
from collage_evo.errors import InputError
from collage_evo.testing.cases import CASES
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.cudnn import CudnnBackend
from collage_evo_cuda.cudnn import backend as module
from collage_evo_cuda.cudnn.emit import handle_on
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.open import open_device
from device_helpers import largest_error
from stand_in import FakeCuda

BACKEND = CudnnBackend()


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_cudnn.Record]:
    yield fake_cudnn.install(monkeypatch)
    handle_on.cache_clear()


@pytest.mark.parametrize("case", ["conv_add_relu", "residual_block", "conv_transpose", "gemm_rows", "conv_3d_groups"])
@pytest.mark.parametrize("variant", ["cuda", "cuda-tf32", "cuda-bf16"])
def test_a_region_runs_on_the_device_and_from_a_capture(
    case: str, variant: str, device: Device, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    model, chosen = CASES[case](), BACKEND.variant(variant)
    assert isinstance(BACKEND.build(model, Target("cuda"), chosen, tmp_path), Built)
    loaded = BACKEND.load(tmp_path, Target("cuda"), chosen, (), ())
    assert isinstance(loaded, DeviceExecutable)
    assert loaded.capturable
    assert largest_error(device, loaded, model) < 0.02
    assert record.handles == 1


def test_steps_are_compiled_once_where_there_is_a_device(
    device: Device, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    built = BACKEND.build(CASES["residual_block"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    assert isinstance(built, Built)
    assert {name for name in built.files if name.endswith(".cudnn")} == {"step0.cudnn", "step1.cudnn", "step2.cudnn"}
    compiled = record.compiled
    loaded = BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), (), ())
    assert largest_error(device, loaded, CASES["residual_block"]()) < 0.02
    assert (record.compiled, record.deserialised) == (compiled, compiled)


def test_what_was_planned_without_a_device_is_compiled_where_there_is_one(
    fake_cuda: FakeCuda, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    built = BACKEND.build(CASES["residual_block"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    assert isinstance(built, Built)
    assert record.compiled == 0
    with fake_cuda.used():
        loaded = BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), (), ())
        assert largest_error(open_device("cuda"), loaded, CASES["residual_block"]()) < 0.02
    assert (record.compiled, record.deserialised) == (3, 0)


@pytest.mark.parametrize(("variant", "engine"), [("cuda", 11), ("cuda-tf32", 51), ("cuda-f16", 51)])
def test_tensor_cores_round_and_are_used_only_where_that_was_asked_for(
    variant: str, engine: int, device: Device, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant(variant), tmp_path)
    heavy = 1 if variant == "cuda-f16" else 0  # the first step gives the input its type
    assert record.built[heavy] == engine


@pytest.mark.parametrize("variant", [variant.name for variant in BACKEND.variants if "nhwc" not in variant.name])
def test_no_engine_gives_other_numbers_each_time(
    variant: str, device: Device, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    BACKEND.build(CASES["residual_block"](), Target("cuda"), BACKEND.variant(variant), tmp_path)
    unsteady = {engine for engine, notes in fake_cudnn.ENGINES if fake_cudnn.Note.NONDETERMINISTIC in notes}
    assert unsteady
    assert not unsteady & set(record.built)


def test_a_step_without_an_engine_is_a_failed_build(
    device: Device, record: fake_cudnn.Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fake_cudnn, "ENGINES", fake_cudnn.ENGINES[:-1])
    built = BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert built.reason.startswith("cudnn: no engine for conv_fprop + add in float32: ")


def test_a_graph_that_makes_no_sense_is_no_engine_missing(
    device: Device, record: fake_cudnn.Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def validate(self: fake_cudnn.Graph) -> None:
        raise ValueError("Inner dimensions must match for matmul")

    monkeypatch.setattr(fake_cudnn.Graph, "validate", validate)
    built = BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    assert built == BuildFailure("cudnn: Inner dimensions must match for matmul", raw=True)


def test_variants_that_are_no_choice_are_not_built(tmp_path: Path) -> None:
    for case, variant in (("matmul_two_inputs", "cuda"), ("gemm", "cuda-nhwc")):
        built = BACKEND.build(CASES[case](), Target("cuda"), BACKEND.variant(variant), tmp_path)
        assert built == BuildFailure(f"cudnn: {variant} is no choice here")


def test_damaged_weights_and_other_arrays_are_refused(
    device: Device, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    loaded = BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), (), ())
    array = device.arena(256)(0, (8,), "float32")
    with pytest.raises(InputError, match="bytes where"):
        loaded.bind([array], [array])
    np.savez(tmp_path / "weights.npz", **{"#w0": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="not those of its plan"):
        BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), (), ())
    np.savez(tmp_path / "weights.npz", w0=np.array([{}], object))
    with pytest.raises(InputError, match="damaged"):
        BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), (), ())


def test_memory_of_the_device_is_given_back(
    fake_cuda: FakeCuda, device: Device, record: fake_cudnn.Record, tmp_path: Path
) -> None:
    model = CASES["residual_block"]()
    BACKEND.build(model, Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    before = fake_cuda.live_bytes
    largest_error(device, BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), (), ()), model)
    assert fake_cuda.live_bytes == before


def installed(monkeypatch: pytest.MonkeyPatch, frontend: Probe, **libraries: str) -> None:
    """The packages that are there, in these versions."""

    def version(name: str) -> str:
        if name not in libraries:
            raise module.PackageNotFoundError(name)
        return libraries[name]

    monkeypatch.setattr(module, "probe_distribution", lambda *_: frontend)
    monkeypatch.setattr(module, "version", version)


def test_the_probe_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeCuda) -> None:
    assert "nvidia-cudnn-frontend is not installed" in checks.probe_distribution("nvidia-cudnn-frontend", "").reason
    installed(monkeypatch, Probe(True, "1.20.0"))
    assert "is older than 1.32" in BACKEND.probe().reason
    installed(monkeypatch, Probe(True, "1.32.0"))
    assert "cuDNN itself is not installed" in BACKEND.probe().reason
    installed(monkeypatch, Probe(True, "1.32.0"), **{"nvidia-cudnn-cu13": "9.28"})
    with fake_cuda.used(cuda_capability="7.0"):
        assert "needs compute capability 7.5, this GPU has 7.0" in BACKEND.probe().reason
    with fake_cuda.used(cuda_devices=0):
        assert "no CUDA device here" in BACKEND.probe().reason
    with fake_cuda.used():
        assert BACKEND.probe() == Probe(True, "1.32.0, cuDNN 9.28")


@pytest.mark.parametrize(
    ("version", "taken"),
    [("1.33rc1", True), ("1.32.0+cu13", True), ("2", True), ("1.31.9rc1", False), ("1.4", False), ("dev", False)],
)
def test_versions_of_any_form_are_told_apart(
    version: str, taken: bool, monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeCuda
) -> None:
    installed(monkeypatch, Probe(True, version), **{"nvidia-cudnn-cu13": "9.28"})
    with fake_cuda.used():
        found = BACKEND.probe()
    assert found.available is taken
    assert taken or f"{version} is older than 1.32" in found.reason


def test_every_variant_is_of_the_gpu() -> None:
    assert BACKEND.devices == ("cuda",)
    assert Variant("cuda", device="cuda") in BACKEND.variants
