"""How a default run does beside quantisation tools on networks of 60 to 200 ms, also held to AVX2 alone.

    python benchmarks/ordinary.py export FOLDER          # a Python with torch and torchvision
    python benchmarks/ordinary.py tools FOLDER           # one with nncf
    COLLAGE_EVO_PROCESSOR=avx2 python benchmarks/ordinary.py race FOLDER ordinary.json [--networks ...] [--rounds 8]
    COLLAGE_EVO_PROCESSOR=avx2 python benchmarks/ordinary.py bits FOLDER bits.json

Networks are torchvision's, exported with random weights whose BatchNormalization has the statistics of the data: 48
drawn images, and 12 others to judge by. ``race`` starts a default run on each, and lets ONNX Runtime, OpenVINO, the
tools' files and the answer take turns on one core, each in a process of its own. Errors are relative, of all outputs
together, against ONNX Runtime without optimisations. Raw times, answers and errors go to the JSON file. ``bits``: the
error of all convolutions and products in int8 by scales that no pair of weights saturates, by 7 bits and by 8 bits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS = {
    "inception_v3": 299, "densenet121": 224, "efficientnet_b0": 224,
    "regnet_x_3_2gf": 224, "vit_b_32": 224, "deeplabv3_mobilenet_v3_large": 448,
}  # fmt: skip
"""torchvision's names, and the side of the image. The last three are in no other benchmark."""
SAMPLES, HELD_OUT = 48, 12
BUDGET = 0.02
LEAST_SPREAD = 0.3
"""Share of the outputs that differs between samples: where it is 0, errors say nothing."""
TOOLS = ("nncf", "nncf_fix", "nncf_heavy_fix", "static", "static_reduced")


def export(folder: Path, names: Sequence[str]) -> None:
    """Write each network's ONNX file and its data."""
    import torch
    import torchvision

    from collage_evo.models.images import draw_images

    for name in names:
        size, place = NETWORKS[name], folder / name
        place.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        models = torchvision.models.segmentation if name.startswith("deeplab") else torchvision.models
        options: dict[str, Any] = {"weights": None}
        if name.startswith("inception"):
            options |= {"aux_logits": False, "init_weights": False}
        if name.startswith("deeplab"):
            options |= {"weights_backbone": None, "aux_loss": False}
        images = np.concatenate(list(draw_images(size, size, count=SAMPLES + HELD_OUT)))
        net = getattr(models, name)(**options)
        if name.startswith("vit"):  # starts with a head of zeros
            torch.nn.init.xavier_uniform_(net.heads.head.weight)
        for layer in net.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.reset_running_stats()
                layer.momentum = None  # the mean over all batches
        with torch.no_grad():
            net.train()
            for k in range(0, 32, 8):
                net(torch.from_numpy(images[k : k + 8]))
            made = net.eval()(torch.from_numpy(images[SAMPLES:]))
        outputs = (made["out"] if isinstance(made, dict) else made).numpy()
        spread = float(np.linalg.norm(outputs - outputs.mean(0)) / np.linalg.norm(outputs))
        if spread < LEAST_SPREAD:
            raise SystemExit(f"{name}: outputs of different images differ by {spread:.3f} only")
        file = place / "model.onnx"
        one = torch.from_numpy(images[:1])
        torch.onnx.export(net, (one,), file, input_names=["input"], dynamo=False, opset_version=18)
        np.savez(place / "data.npz", input=images[:SAMPLES])
        np.savez(place / "heldout.npz", input=images[SAMPLES:])
        print(name, f"{file.stat().st_size / 1e6:.0f} MB, outputs differ by {spread:.2f}", flush=True)


def make_tools(folder: Path, names: Sequence[str]) -> None:
    """Quantise each network with each tool."""
    for name in names:
        place = folder / name / "tools"
        place.mkdir(exist_ok=True)
        rows = [row[None] for row in np.load(folder / name / "data.npz")["input"]]
        for tool in TOOLS:
            path = _file(folder, name, tool)
            if path.exists():
                continue
            began = time.monotonic()
            try:
                (_static if tool.startswith("static") else _nncf)(folder / name / "model.onnx", path, rows, tool)
            except Exception as error:  # a tool may raise anything; the race goes on without it
                print(name, tool, f"failed: {error}"[:200], flush=True)
            print(name, tool, f"{time.monotonic() - began:.0f} s", flush=True)


def _nncf(model: Path, made: Path, rows: Sequence[np.ndarray], tool: str) -> None:
    import nncf
    import openvino as ov
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    core = ov.Core()
    read = core.read_model(str(model))
    fix = OverflowFix.ENABLE if "fix" in tool else OverflowFix.DISABLE
    options: dict[str, Any] = {}
    if "heavy" in tool:
        light = {op.get_type_name() for op in read.get_ops()} - {"Convolution", "GroupConvolution", "MatMul"}
        light -= {"Constant", "Result"}
        names = [op.get_friendly_name() for op in read.get_ops() if op.get_type_name() in light]
        options["ignored_scope"] = nncf.IgnoredScope(names=names, validate=False)
    quantised = nncf.quantize(
        read, nncf.Dataset(list(rows)), subset_size=len(rows),
        advanced_parameters=AdvancedQuantizationParameters(overflow_fix=fix), **options,
    )  # fmt: skip
    ov.save_model(quantised, str(made), compress_to_fp16=False)


def _static(model: Path, made: Path, rows: Sequence[np.ndarray], tool: str) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader:
        def __init__(self) -> None:
            self._left = iter(rows)

        def get_next(self) -> dict[str, np.ndarray] | None:
            row = next(self._left, None)
            return None if row is None else {"input": row}

    prepared = made.with_suffix(".prepared.onnx")
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared), str(made), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, reduce_range=tool.endswith("reduced"),
    )  # fmt: skip


def _file(folder: Path, name: str, tool: str) -> Path:
    return folder / name / "tools" / f"{tool}{'.onnx' if tool.startswith('static') else '.xml'}"


def opened(library: str, path: str) -> Callable[[np.ndarray], np.ndarray]:
    """What runs a file in a library with its defaults, on one thread."""
    import collage_evo  # holds the processor before a library is imported

    if library == "collage_evo":
        session = collage_evo.load(path)
        return lambda x: np.asarray(session.run(None, {"input": x})[0])
    if library.startswith("onnxruntime"):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        if library == "onnxruntime-exact":
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        loaded = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda x: np.asarray(loaded.run(None, {"input": x})[0])
    import openvino as ov

    request = ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": "1"}).create_infer_request()
    return lambda x: np.array(request.infer([x])[0])


def outputs(library: str, path: str, data: str, made: str) -> None:
    """Write what a file gives on each sample; in a process of its own."""
    run = opened(library, path)
    np.save(made, np.stack([run(row[None]) for row in np.load(data)["input"]]))


def sides_of(folder: Path, name: str) -> dict[str, tuple[str, Path]]:
    """Library and file by the side's name."""
    place, found = folder / name, {}
    for library in ("onnxruntime", "openvino"):
        found[f"{library} float32 file"] = library, place / "model.onnx"
    for tool in TOOLS:
        for library in ("openvino", "onnxruntime") if tool.startswith("static") else ("openvino",):
            found[f"{tool} in {library}"] = library, _file(folder, name, tool)
    found["collage_evo"] = "collage_evo", place / "run" / "best.collage"
    return {side: both for side, both in found.items() if both[1].exists()}


def answer(folder: Path, name: str) -> float:
    """Start a default run, unless its answer is there; seconds that it took."""
    place = folder / name
    if (place / "run" / "result.json").exists():
        return float(json.loads((place / "run" / "result.json").read_text())["wall_seconds"])
    began = time.monotonic()
    command = ["run", place / "model.onnx", "--data", place / "data.npz", "--out", place / "run"]
    subprocess.run([sys.executable, "-m", "collage_evo", *map(str, command)], check=True)
    return time.monotonic() - began


def race(folder: Path, names: Sequence[str], output: Path, rounds: int, seconds: float) -> None:
    """Take turns, and print a table."""
    from turns import median_ms, ratio, take_turns

    from collage_evo.target.processor import this_machine
    from collage_evo.target.slots import usable_cores

    cpu, found = this_machine().cpu, {}
    print(cpu, flush=True)
    for name in names:
        took = answer(folder, name)
        sides, errors = sides_of(folder, name), {}
        data, made = folder / name / "heldout.npz", folder / name / "made.npy"
        exact = _outputs("onnxruntime-exact", folder / name / "model.onnx", data, made)
        for side, (library, path) in sides.items():
            errors[side] = float(np.linalg.norm(_outputs(library, path, data, made) - exact) / np.linalg.norm(exact))
        turns = take_turns(
            {side: ("ordinary", library, str(path), str(data)) for side, (library, path) in sides.items()},
            usable_cores()[:1], rounds, seconds,
        )  # fmt: skip
        ms = {side: median_ms(turns, side) for side in sides}
        rivals = [side for side in sides if side != "collage_evo"]
        best = min((side for side in rivals if errors[side] <= BUDGET), key=ms.__getitem__)
        plain = min((side for side in rivals if "float32" in side), key=ms.__getitem__)
        gains = {rival: ratio(turns, rival, "collage_evo") for rival in {best, plain}}
        print(f"{name}, {took:.0f} s", flush=True)
        for side in sorted(sides, key=ms.__getitem__):
            print(f"  {side:30} {ms[side]:8.2f} ms  error {errors[side]:.4f}", flush=True)
        for rival, gain in gains.items():
            print(f"  collage_evo is {gain} times as fast as {rival}", flush=True)
        raw = {side: [turn.times_ms for turn in turns[side]] for side in sides}
        found[name] = {"seconds": took, "errors": errors, "ms": ms, "raw": raw,
                       "gains": {rival: str(gain) for rival, gain in gains.items()}}  # fmt: skip
        output.write_text(json.dumps({"cpu": cpu, "networks": found}))


def bits(folder: Path, names: Sequence[str], output: Path) -> None:
    """Compile each whole network in int8 with three kinds of weight scales, and print the errors."""
    import tempfile
    from unittest import mock

    import onnx

    from collage_evo.backends.checks import numerics_in
    from collage_evo.backends.registry import get_backend
    from collage_evo.graph.normalise import normalise
    from collage_evo.graph.read import build_graph
    from collage_evo.graph.reference import Reference
    from collage_evo.precision.quantise import rounded
    from collage_evo.precision.quantise.ranges import calibrate
    from collage_evo.precision.quantise.scales import weight_scales
    from collage_evo.precision.transforms.piece import EditedRegion
    from collage_evo.precision.transforms.transform import Data
    from collage_evo.target.target import Target

    ways = {
        "pairs": rounded._fitting_scales,
        "7 bits": lambda node, weights, axis: weight_scales(weights, axis) * np.float32(127 / 64),
        "8 bits": lambda node, weights, axis: weight_scales(weights, axis),
    }
    found: dict[str, dict[str, float]] = {}
    for name, library in ((name, library) for name in names for library in ("onnxruntime", "openvino")):
        rows = {part: np.load(folder / name / f"{part}.npz")["input"] for part in ("data", "heldout")}
        graph = build_graph(normalise(onnx.load(folder / name / "model.onnx")))
        ((given,), (made,)), backend = (graph.inputs, graph.outputs), get_backend(library)
        ranges, exact = calibrate(graph, [{given: row[None]} for row in rows["data"]], 2), Reference(graph.model, 2)
        right = np.concatenate([exact.run({given: row[None]})[0] for row in rows["heldout"]])
        variant, errors = backend.variant("int8"), found.setdefault(f"{name} in {library}", {})
        for way, scales in ways.items():
            graph.memo.pop(rounded._MEMO, None)
            with mock.patch.object(rounded, "_fitting_scales", scales), tempfile.TemporaryDirectory() as place:
                numerics = numerics_in(graph, graph.all_nodes, variant, ranges)
                model = EditedRegion(graph, graph.all_nodes, numerics, Data(ranges, variant.quantisers)).model()
                base, target = backend.variant(variant.base), Target.here("cpu", 1)
                backend.build(model, target, base, Path(place))
                sides = [graph.tensors[given]], [graph.tensors[made]]
                loaded: Any = backend.load(Path(place), target, base, *sides)
                got = np.concatenate([loaded.run([row[None]])[0] for row in rows["heldout"]])
            errors[way] = float(np.linalg.norm(got - right) / np.linalg.norm(right))
        print(f"{name} in {library}: {errors}", flush=True)
        output.write_text(json.dumps(found))


def _outputs(library: str, path: Path, data: Path, made: Path) -> np.ndarray:
    command = [sys.executable, __file__, "outputs", library, str(path), str(data), str(made)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    return np.asarray(np.load(made))


def main() -> None:
    if sys.argv[1:2] == ["outputs"]:
        outputs(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("export", "tools", "race", "bits"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path, nargs="?", default=Path("ordinary.json"))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    if options.step == "export":
        export(options.folder, options.networks)
    elif options.step == "tools":
        make_tools(options.folder, options.networks)
    elif options.step == "bits":
        bits(options.folder, options.networks, options.output)
    else:
        race(options.folder, options.networks, options.output, options.rounds, options.seconds)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
