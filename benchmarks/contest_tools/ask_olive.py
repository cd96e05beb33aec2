"""Microsoft's Olive: takes a question as a file, writes the model.

Its pass for static quantisation as it is. Its search is not asked: release 0.13 does not take a metric of one's own,
whose configuration it cannot write.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from asked import Asked, package, read

GIVEN = "given_samples"
os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"


def workflow(asked: Asked) -> dict[str, Any]:
    """A workflow of one pass, with the samples as a data set of Olive's."""
    samples, registry = asked.samples(), package("olive.data.registry").Registry
    registry.register_dataset(GIVEN)(lambda **_: [(sample, 0) for sample in samples])
    data = {
        "name": GIVEN,
        "load_dataset_config": {"type": GIVEN},
        "dataloader_config": {"type": "no_auto_batch_dataloader"},
    }
    here = {
        "type": "LocalSystem",
        "accelerators": [{"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}],
    }
    return {
        "input_model": {"type": "ONNXModel", "model_path": asked.model},
        "data_configs": [data],
        "passes": {"quantised": {"type": "OnnxStaticQuantization", "data_config": GIVEN}},
        "systems": {"here": here},
        "target": "here",
        "host": "here",
        "output_dir": "made",
        "cache_dir": "cache",
    }


def main() -> None:
    asked = read()
    (found,) = package("olive.workflows").run(workflow(asked)).get_output_models()
    shutil.copyfile(found.model_path, asked.made)


if __name__ == "__main__":
    main()
