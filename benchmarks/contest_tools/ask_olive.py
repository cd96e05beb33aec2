"""Microsoft's Olive as a contestant.

Its pass for static quantisation as it is. Its search is not asked: release 0.13 does not take a metric of one's own,
whose configuration it cannot write.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from request import Request, package, read

DATASET = "given_samples"
os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"


def workflow(request: Request) -> dict[str, Any]:
    """A workflow of one pass, with the samples as a data set of Olive's."""
    samples, registry = request.samples(), package("olive.data.registry").Registry
    registry.register_dataset(DATASET)(lambda **_: [(sample, 0) for sample in samples])
    data = {
        "name": DATASET,
        "load_dataset_config": {"type": DATASET},
        "dataloader_config": {"type": "no_auto_batch_dataloader"},
    }
    here = {
        "type": "LocalSystem",
        "accelerators": [{"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}],
    }
    return {
        "input_model": {"type": "ONNXModel", "model_path": request.model},
        "data_configs": [data],
        "passes": {"quantised": {"type": "OnnxStaticQuantization", "data_config": DATASET}},
        "systems": {"here": here},
        "target": "here",
        "host": "here",
        "output_dir": "made",
        "cache_dir": "cache",
    }


def main() -> None:
    request = read()
    (model,) = package("olive.workflows").run(workflow(request)).get_output_models()
    shutil.copyfile(model.model_path, request.made)


if __name__ == "__main__":
    main()
