"""Does a library run other operators for a person's file than for the normalised model?

    python benchmarks/own_form.py own_form.json builtin:densenet121 FOLDER/*.onnx

Libraries fuse and fold by themselves, so another form of the file need not be another form of what runs. What each
library has made of either is counted: in ONNX Runtime by operator, in OpenVINO, in float32 and in bfloat16, by
operator, kernel, precision, layout and shape. That needs no clock. Where the counts differ,
``benchmarks/rewrites.py --models`` times the two. Inputs are those of a NAME.npz beside a file, else random ones.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
from rewrite_forms.form import AS_WRITTEN, ORIGINAL, WholeModel
from rich.console import Console
from rich.table import Table

from collage_evo.errors import InputError

Operators = Counter[str]
_TOLD = ("layerType", "primitiveType", "outputPrecisions", "outputLayouts")
_PASSIVE = {"Const", "Constant", "Input", "Output", "Parameter", "Result"}
SHOWN = 3
"""Operators that the table has of each side."""


def in_onnxruntime(model: onnx.ModelProto) -> Operators:
    """The operators of the model that ONNX Runtime has optimised, on one thread of the processor."""
    import onnxruntime  # not above: imported before collage_evo, it reports over the network

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        optimised = onnx.load(options.optimized_model_filepath)
    return Counter(node.op_type for node in optimised.graph.node)


def in_openvino(model: onnx.ModelProto, precision: str) -> Operators:
    """The operators of OpenVINO's compiled model in ``precision``, with all that is told of their kernels."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1}
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", config)
    found: Operators = Counter()
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = op.get_rt_info()
        told = [info[key].astype(str) if key in info else "" for key in _TOLD]
        if told[0] not in _PASSIVE:
            shapes = [str(output.get_partial_shape()) for output in op.outputs()]
            found[" ".join([*told, *shapes])] += 1
    return found


LIBRARIES: dict[str, Callable[[onnx.ModelProto], Operators]] = {
    "onnxruntime": in_onnxruntime,
    "openvino": lambda model: in_openvino(model, "f32"),
    "openvino/bf16": lambda model: in_openvino(model, "bf16"),
}


def compare(source: str) -> dict[str, object]:
    """By library, how many operators run of the file and of the normalised model, and which run in one alone.

    A library that does not take both has its words instead.
    """
    model = WholeModel(source)
    found: dict[str, object] = {}
    for library, count in LIBRARIES.items():
        try:
            file, normalised = (count(model.model("whole", form)) for form in (AS_WRITTEN, ORIGINAL))
        except Exception as error:  # whatever a library raises over what it does not take
            found[library] = " ".join(str(error).split())
            continue
        counts = [sum(file.values()), sum(normalised.values())]
        found[library] = {"operators": counts, "file": file - normalised, "normalised": normalised - file}
    return found


def shown(found: object) -> str:
    """One cell of the table."""
    if not isinstance(found, dict):
        return f"not taken: {str(found)[:60]}"
    file, normalised = found["operators"]
    if not found["file"] and not found["normalised"]:
        return f"the same {file}"
    return f"{file} and {normalised}: {_most(found['file'])} / {_most(found['normalised'])}"


def _most(found: Operators) -> str:
    return ", ".join(f"{count} {name.split()[0]}" for name, count in found.most_common(SHOWN)) or "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="JSON")
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    rows: dict[str, object] = {}
    table = Table("model", *LIBRARIES, title="operators that run of the file and of the normalised model: only there")
    for source in options.models:
        try:
            found = compare(source)
        except InputError as error:  # it only runs whole
            rows[source] = str(error)
            print(f"{source} is left out: {error}", flush=True)
            continue
        rows[source] = found
        options.output.write_text(json.dumps(rows, indent=1))
        table.add_row(Path(source).stem, *map(shown, found.values()))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
