"""Loader of one ncnn network, from a folder and the piece's entry in pipeline.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np


class Network:
    """A network in float32, with pools that retain freed memory: new memory would cost page faults."""

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
        # The pools hold the network's weights, and crash when they are freed first.
        net = getattr(self, "net", None)
        if net is not None:
            net.clear()

    def run(self, inputs: Sequence[tuple[str, Any, bool]], results: Sequence[tuple[str, np.ndarray]]) -> None:
        """Run on Mats by name, and copy the ``results`` into arrays. A Mat that layers would write on is cloned."""
        extractor = self.net.create_extractor()
        mat_out = output = None
        try:
            for name, mat, shared in inputs:
                extractor.input(name, mat if shared else mat.clone())
            for name, array in results:
                status, mat_out = extractor.extract(name)
                output = np.asarray(mat_out)
                if status or output.shape != array.shape:
                    raise RuntimeError(f"ncnn gave {name} as {output.shape}, status {status}, not {array.shape}")
                np.copyto(array, output)
        finally:
            # An error holds this frame, and Mats in the network's pools would be freed after the pools.
            extractor = mat_out = output = None


class Bindable:
    """A network of which tensors lose their batch axis where they are ``batched``; ``shared``: inputs that it only
    reads."""

    def __init__(
        self,
        network: Network,
        batched_inputs: Sequence[bool],
        batched_outputs: Sequence[bool],
        shared: Sequence[bool],
    ) -> None:
        self.network = network
        self._batched_inputs, self._batched_outputs, self._shared = batched_inputs, batched_outputs, shared

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        """A call that reads and writes these arrays, which must stay alive: a Mat holds no reference to its array.

        Raises:
            ValueError: one is a batch of more than one sample: ncnn would run only the first one.
        """
        import ncnn

        batched_arrays = (*self._batched_inputs, *self._batched_outputs)
        for array, batched in zip((*inputs, *outputs), batched_arrays, strict=True):
            if batched and len(array) != 1:
                raise ValueError(f"ncnn runs batches of one sample, and a tensor has the shape {list(array.shape)}")
        mats = [
            (f"in{k}", ncnn.Mat(array[0] if batched else array), in_place)
            for k, (array, batched, in_place) in enumerate(
                zip(inputs, self._batched_inputs, self._shared, strict=True)
            )
        ]
        results = [
            (f"out{k}", array[0] if batched else array)
            for k, (array, batched) in enumerate(zip(outputs, self._batched_outputs, strict=True))
        ]
        return partial(self.network.run, mats, results)


class Piece(Bindable):
    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        settings = manifest["settings"]
        param, weights = (folder / name for name in manifest["files"])
        threads, winograd = int(settings["num_threads"]), settings["use_winograd_convolution"] == "1"
        names = ("inputs_without_batch_axis", "outputs_without_batch_axis", "inputs_read_in_place")
        marks = ([one == "1" for one in settings[name]] for name in names)
        super().__init__(Network(param, weights, threads, winograd), *marks)


def cpp_flags(links: Path) -> list[str]:
    """The wheel has no headers: install ncnn from source by its build guide (cmake, make install)."""
    home = Path(os.environ.get("NCNN_HOME", "/usr/local"))
    library = next((path for path in home.glob("lib*/**/libncnn.*") if path.suffix in (".a", ".so")), None)
    if library is None or not (home / "include" / "ncnn" / "net.h").exists():
        raise FileNotFoundError("no ncnn/net.h: set NCNN_HOME to where ncnn was installed from its source")
    return ["-I", str(home / "include"), str(library), f"-Wl,-rpath,{library.parent}", "-fopenmp"]
