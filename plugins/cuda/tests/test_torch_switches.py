"""What a GPU multiplies in, and where calls run on it: PyTorch's switches are set around its own calls alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collage_evo.backends.variants import Arithmetic
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.dlpack import CUDA
from collage_evo_cuda.torch_cuda.loaded import LoadedOnDevice
from collage_evo_cuda.torch_cuda.switches import computing_in
from device_helpers import hosted

torch = pytest.importorskip("torch")


def switches() -> dict[str, Any]:
    """All that a variant's arithmetic decides, in both generations of PyTorch's switches."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    parts = {"matmul": matmul, "convolution": cudnn.conv, "recurrent": cudnn.rnn, "cudnn": cudnn}
    found = {name: part.fp32_precision for name, part in parts.items()}
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        found[name] = getattr(matmul, name)
    found["benchmark"] = cudnn.benchmark
    for name, holder in (("older matmul", matmul), ("older cudnn", cudnn)):
        try:
            found[name] = holder.allow_tf32
        except RuntimeError:
            found[name] = "disagrees"
    return found


@pytest.fixture
def clean_switches() -> Iterator[None]:
    """PyTorch's own defaults, before and after."""

    def reset() -> None:
        torch.backends.fp32_precision = "none"
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True

    reset()
    yield
    reset()


@pytest.mark.usefixtures("clean_switches")
@pytest.mark.parametrize("arithmetic", [*Arithmetic][:4])
def test_tf32_is_on_in_calls_of_its_own_variants_alone(arithmetic: Arithmetic) -> None:
    seen: list[dict[str, Any]] = []

    def program(x: Any) -> tuple[Any]:
        seen.append(switches())
        return (x + 1,)

    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    before = switches()
    call = LoadedOnDevice(lambda place: program, arithmetic).bind([hosted(x)], [hosted(y)])
    call()
    assert switches() == before
    in_bind, in_call = seen
    assert in_bind == in_call | {"benchmark": True}
    tf32 = arithmetic is Arithmetic.TF32
    assert {in_call[part] for part in ("matmul", "convolution", "recurrent", "cudnn")} == {"tf32" if tf32 else "ieee"}
    assert in_call["older matmul"] is in_call["older cudnn"] is tf32
    assert not any(value for name, value in in_call.items() if "reduced" in name or name == "benchmark")
    assert y.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("clean_switches")
def test_switches_are_as_they_were_after_a_call_that_fails() -> None:
    def program(x: Any) -> tuple[Any]:
        if x.all():
            raise RuntimeError("not today")
        return (x,)

    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    before = switches()
    call = LoadedOnDevice(lambda place: program, Arithmetic.TF32).bind([hosted(x)], [hosted(y)])
    x[...] = 1
    with pytest.raises(RuntimeError, match="not today"):
        call()
    assert switches() == before


@pytest.mark.usefixtures("clean_switches")
@pytest.mark.parametrize("precision", ["tf32", "ieee", "none"])
def test_switches_that_somebody_set_by_the_newer_names_alone_are_kept(precision: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = precision
    torch.backends.cudnn.conv.fp32_precision = precision
    before = switches()
    with computing_in(Arithmetic.FLOAT32):
        assert not switches()["older matmul"]
    assert switches() == before


def test_on_a_gpu_calls_run_on_the_arrays_stream_in_a_pool_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[str] = []
    """Where what is called now would run."""

    @contextmanager
    def entered(what: str) -> Iterator[None]:
        now.append(what)
        yield
        now.pop()

    place, seen = torch.device("cuda", 0), []
    tensor = SimpleNamespace(device=place, copy_=lambda made, non_blocking: seen.append(["copy", *now]))
    monkeypatch.setattr(torch, "from_dlpack", lambda array: tensor)
    monkeypatch.setattr(torch, "zeros_like", lambda _: "zeros")
    monkeypatch.setattr(torch.cuda, "device", lambda where: entered(str(where)))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address, where: f"stream {address}")
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "MemPool", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda pool, where: entered(pool))
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: seen.append([name, *now]))

    def program(given: Any) -> tuple[Any]:
        seen.append(["zeros" if given == "zeros" else "input", *now])
        return (given,)

    array = DeviceArray(0, (3,), "float32", (CUDA, 0), 7, None)
    executable = LoadedOnDevice(lambda where: program, Arithmetic.FLOAT32)
    assert not executable.capturable
    call = executable.bind([array], [array])
    assert executable.capturable
    there = ["cuda:0", "stream 7"]
    assert seen == [["zeros", *there], ["synchronize"], ["empty_cache"]]
    seen.clear()
    call()
    assert seen == [["input", *there, "pool"], ["copy", *there, "pool"]]
