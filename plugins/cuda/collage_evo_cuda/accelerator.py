"""What the core asks of an NVIDIA GPU, by the contract of ``collage_evo/hardware/accelerator.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from collage_evo.errors import UnavailableError
from collage_evo.hardware.accelerator import Accelerator
from collage_evo_cuda.arrays import as_device_array
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.gpu import describe_gpu, format_capability, takes_one_process
from collage_evo_cuda.open import open_device
from collage_evo_cuda.runner import DeviceRunner, time_copies
from collage_evo_cuda.work import exclusive


class Cuda(Accelerator):
    """The driver's first GPU."""

    # The least: while a GPU writes these bytes, the host launches the region behind them. On an idle GPU the launch
    # would be part of the region's time, although a capture of the model does not pay it. Whether so many bytes take
    # long enough was not measured. The most: last-level caches of GPUs are larger than those of CPUs. Triton's
    # ``do_bench`` clears as many bytes; not measured here.
    flush_bytes: ClassVar[tuple[int, int]] = (64 * 2**20, 256 * 2**20)

    def describe(self) -> str:
        return describe_gpu()

    def require(self) -> None:
        try:
            describe_gpu()
            one_process = takes_one_process()
        except UnavailableError as missing:
            raise UnavailableError(f"no CUDA device here ({missing}); use a machine that has one") from None
        if one_process:
            raise UnavailableError(
                "the GPU admits only one process, and a search uses several: ask the administrator for "
                "nvidia-smi --compute-mode=DEFAULT"
            )

    def runs_code_for(self, described: str) -> bool:
        """Code for another compute capability does not run."""
        open_device("cuda")
        return format_capability(describe_gpu()) == format_capability(described)

    def runner(self) -> type[DeviceRunner]:
        return DeviceRunner

    @contextmanager
    def borrowed(self, arrays: Mapping[str, Any]) -> Iterator[Mapping[str, DeviceArray]]:
        device = open_device("cuda")
        with exclusive(device):  # __dlpack__ has our stream wait: never in another thread's capture
            yield {name: as_device_array(name, value, device.stream) for name, value in arrays.items()}

    def time_copies(self, nbytes: int, there: bool, runs: int) -> tuple[float, ...]:
        return time_copies(open_device("cuda"), nbytes, there, runs)

    def harness(self) -> Any:
        from collage_evo_cuda.harness import DeviceHarness  # serving does not need it

        return DeviceHarness(open_device("cuda"))
