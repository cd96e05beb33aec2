"""An ncnn network in float32: takes its two files, gives one that is ready to run, with memory pools of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Network:
    """A loaded network. Its pools keep what a run has freed: taken anew, memory would cost page faults each time."""

    def __init__(self, param: Path, weights: Path, threads: int, winograd: bool) -> None:
        import ncnn

        self.net: Any = ncnn.Net()
        self._pools = (ncnn.PoolAllocator(), ncnn.PoolAllocator())
        option = self.net.opt
        option.num_threads = threads
        option.lightmode = True
        option.blob_allocator, option.workspace_allocator = self._pools
        option.use_vulkan_compute = False
        option.use_packing_layout = option.use_sgemm_convolution = True
        option.use_winograd_convolution = winograd
        for name in dir(option):
            if name.startswith(("use_fp16", "use_bf16", "use_int8")):
                setattr(option, name, False)
        if self.net.load_param(str(param)) or self.net.load_model(str(weights)):
            raise RuntimeError(f"ncnn cannot load {param}")

    def __del__(self) -> None:
        # The network's weights lie in the pools, which crash when they go first.
        net = getattr(self, "net", None)
        if net is not None:
            net.clear()
