"""Asks cuDNN itself whether it has engines for what the backend plans: takes models, prints steps by variant.

    python benchmarks/cudnn_engines.py builtin:resnet50 'builtin:bert?layers=1'

Every step of every region that the backend's patterns propose is compiled, in each variant, for a GPU that is only
described: none is needed, and nothing is run. It takes the packages of the extra "cudnn", and a library of the name
libcuda.so.1, since cuDNN is linked against it; it may be one without a device.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import cudnn

from collage_evo.backends.cudnn.backend import CudnnBackend, Described, plan_of
from collage_evo.backends.cudnn.emit import compiled
from collage_evo.backends.cudnn.plan import Plan
from collage_evo.backends.enumerate import propose, supported_nodes
from collage_evo.backends.variants import Variant
from collage_evo.errors import CollageError
from collage_evo.graph.extract import extract
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph

DEVICE = {
    **{"deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0},
    **{"multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "regsPerBlock": 65536},
    **{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024},
    **{"maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448},
    **{"oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024},
    **{"maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerSM": 2048},
    **{"smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "l2CacheSize": 62914560},
    **{"totalGlobalMem": 150754934784, "isTccDriver": 0, "supportCoopLaunch": 1},
}
"""What cuDNN wants to know of a GPU."""


def plans(source: str, backend: CudnnBackend) -> Iterator[tuple[Variant, Plan]]:
    """The plan of every region that is offered, in each of its variants."""
    graph = build_graph(normalise(load_model(source).original))
    supported, _ = supported_nodes(graph, backend)
    for nodes in propose(graph, backend, supported).accepted:
        region = build_graph(extract(graph, nodes))
        for variant in backend.variants_of(region, region.all_nodes):
            yield variant, plan_of(region, variant).plan


def main(sources: Sequence[str]) -> None:
    device = Described(cudnn.create_device_properties(json.dumps(DEVICE)), 90)
    answers: dict[str, str] = {}
    for source in sources:
        count: Counter[tuple[str, bool]] = Counter()
        for variant, plan in plans(source, CudnnBackend()):
            for step in plan.steps:
                key = f"{plan.arithmetic} {step}"
                if key not in answers:
                    try:
                        compiled(step, plan, device=device)
                        answers[key] = ""
                    except CollageError as error:
                        answers[key] = str(error)
                        print(f"{source}, {variant.name}: {error}")
                count[variant.name, not answers[key]] += 1
        for name in dict.fromkeys(name for name, _ in count):
            print(f"{source}, {name}: {count[name, True]} steps with an engine, {count[name, False]} without")


if __name__ == "__main__":
    main(sys.argv[1:])
