"""How a default run does beside quantisation tools on networks of 60 to 200 ms, also held to AVX2 alone.

    python benchmarks/ordinary.py export FOLDER          # a Python with torch and torchvision
    python benchmarks/ordinary.py tools FOLDER           # one with nncf
    COLLAGE_EVO_PROCESSOR=avx2 python benchmarks/ordinary.py race FOLDER ordinary.json [--networks ...] [--rounds 8]
    COLLAGE_EVO_PROCESSOR=avx2 python benchmarks/ordinary.py all FOLDER trained.json --trained [--budget 0.02]
    ... all FOLDER budgets.json --networks inception resnet50 pages --budget 0.05 --picks 0.02 0.01

Networks are torchvision's, exported with random weights whose BatchNormalization has the statistics of the data: 48
drawn images, and 12 others to judge by; or trained ones that packages ship (``ordinary_trained.py``), which need no
torch; or this project's own, ``BUILT``. ``race`` starts a default run on each, picks its answers for further
budgets, and lets ONNX Runtime, OpenVINO, the tools' files and the answers take turns on one core, each in a process
of its own. Errors are relative, against ONNX Runtime without optimisations, of the output that has the largest. Raw
times, answers and errors go to the JSON file. ``all`` is export, tools and race;
what is in the folder is not made again, but for an answer on another processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS = {
    "inception_v3": 299, "densenet121": 224, "efficientnet_b0": 224,
    "regnet_x_3_2gf": 224, "vit_b_32": 224, "deeplabv3_mobilenet_v3_large": 448,
}  # fmt: skip
"""torchvision's names, and the side of the image. The last three are in no other benchmark."""
BUILT = {"inception": "network:inception_v3", "densenet": "network:densenet121", "resnet50": "builtin:resnet50"}
"""Networks with random weights under which errors grow less from layer to layer than in torchvision's."""
SAMPLES, HELD_OUT = 48, 12
BUDGET = 0.02
LEAST_SPREAD = 0.3
"""Share of the outputs that differs between samples: where it is 0, errors say nothing."""
TRANSFORMERS = ("vit_b_32", "sentences")
TOOLS = ("nncf", "nncf_fix", "nncf_heavy_fix", "static", "static_reduced")
OF_TRANSFORMERS = ("nncf_transformer", "nncf_transformer_fix", "dynamic", "dynamic_reduced")
"""What the tools recommend for transformers, besides the others."""
BY_CHANNEL = 13
"""The first opset whose quantisation has scales by channel."""
SECONDS = "seconds.json"
Feeds = Mapping[str, np.ndarray]


def export(folder: Path, names: Sequence[str]) -> None:
    """Write each network's ONNX file and its data, unless they are there."""
    from ordinary_trained import TRAINED

    names = [name for name in names if not (folder / name / "heldout.npz").exists()]
    for name in names:
        if name in TRAINED:
            _write_trained(folder / name, *TRAINED[name](SAMPLES, HELD_OUT))
        if name in BUILT:
            _write_built(folder / name, BUILT[name])
    if drawn := [name for name in names if name in NETWORKS]:
        _export_drawn(folder, drawn)


def _write_built(place: Path, source: str) -> None:
    from networks import PREFIX, make_network

    from collage_evo.models.builtin import make_builtin
    from collage_evo.models.images import draw_images

    model = make_network(source) if source.startswith(PREFIX) else make_builtin(source, 0)[1]
    (given,) = model.graph.input
    side = given.type.tensor_type.shape.dim[-1].dim_value
    images = np.concatenate(list(draw_images(side, side, count=SAMPLES + HELD_OUT)))
    _write_trained(place, model, {given.name: images[:SAMPLES]}, {given.name: images[SAMPLES:]})


def _write_trained(place: Path, model: Any, samples: Feeds, held_out: Feeds) -> None:
    import onnx

    from collage_evo.graph.load.data import write_npz

    place.mkdir(parents=True, exist_ok=True)
    onnx.save(model, place / "model.onnx")
    write_npz(place / "data.npz", samples)
    write_npz(place / "heldout.npz", held_out)
    made = _outputs("onnxruntime-exact", place / "model.onnx", place / "heldout.npz", place / "made.npz")
    spreads = ", ".join(f"{error(made_of, np.broadcast_to(made_of.mean(0), made_of.shape)):.2f}" for made_of in made)
    print(place.name, f"outputs of different samples differ by {spreads}", flush=True)


def _export_drawn(folder: Path, names: Sequence[str]) -> None:
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
    """Quantise each network with each tool, unless that is done; the seconds are written down."""
    for name in names:
        record = folder / name / "tools" / SECONDS
        record.parent.mkdir(exist_ok=True)
        took = json.loads(record.read_text()) if record.exists() else {}
        rows = rows_of(folder / name / "data.npz")
        for tool in (*TOOLS, *(OF_TRANSFORMERS if name in TRANSFORMERS else ())):
            path = _file(folder, name, tool)
            if path.exists():
                continue
            began = time.monotonic()
            try:
                (_nncf if tool.startswith("nncf") else _onnxruntime)(folder / name / "model.onnx", path, rows, tool)
            except Exception as failed:  # a tool may raise anything; the race goes on without it
                print(name, tool, f"failed: {failed}"[:200], flush=True)
            took[tool] = time.monotonic() - began
            print(name, tool, f"{took[tool]:.0f} s", flush=True)
            record.write_text(json.dumps(took))


def rows_of(data: str | Path) -> list[Feeds]:
    """The samples of a file, each with a leading axis of 1."""
    with np.load(data) as loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    count = len(next(iter(arrays.values())))
    return [{name: array[k : k + 1] for name, array in arrays.items()} for k in range(count)]


def _nncf(model: Path, made: Path, rows: Sequence[Feeds], tool: str) -> None:
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it reports over the network
    import nncf
    import openvino as ov
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix

    core = ov.Core()
    read = core.read_model(str(model))
    fix = OverflowFix.ENABLE if "fix" in tool else OverflowFix.DISABLE
    options: dict[str, Any] = {"model_type": nncf.ModelType.TRANSFORMER} if "transformer" in tool else {}
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


def _onnxruntime(model: Path, made: Path, rows: Sequence[Feeds], tool: str) -> None:
    import onnx
    from contest.quantize_static import OPSET, Reader
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, read = made.with_suffix(".prepared.onnx"), onnx.load(model)
    if max(one.version for one in read.opset_import if not one.domain) < BY_CHANNEL:
        model = made.with_suffix(".newer.onnx")
        onnx.save(onnx.version_converter.convert_version(read, OPSET), model)
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    weights = {"per_channel": True, "weight_type": QuantType.QInt8, "reduce_range": tool.endswith("reduced")}
    if tool.startswith("dynamic"):
        quantize_dynamic(str(prepared), str(made), **weights)
        return
    quantize_static(
        str(prepared), str(made), Reader(rows), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
        **weights,
    )  # fmt: skip


def _file(folder: Path, name: str, tool: str) -> Path:
    return folder / name / "tools" / f"{tool}{'.xml' if tool.startswith('nncf') else '.onnx'}"


def opened(library: str, path: str) -> Callable[[Feeds], list[np.ndarray]]:
    """What runs a file in a library with its defaults, on one thread: takes arrays by input, gives the outputs."""
    from native import onnxruntime_session, openvino_model

    import collage_evo  # holds the processor before a library is imported

    if library == "collage_evo":
        session = collage_evo.load(path)
        return lambda feeds: list(session.run(None, feeds))
    if library.startswith("onnxruntime"):
        loaded = onnxruntime_session(Path(path), 1, optimised=library != "onnxruntime-exact")
        return lambda feeds: list(loaded.run(None, feeds))
    request = openvino_model(Path(path), 1, precision="").create_infer_request()
    return lambda feeds: [np.array(made) for made in request.infer(feeds).values()]


def outputs(library: str, path: str, data: str, made: str) -> None:
    """Write what a file gives on each sample; in a process of its own."""
    run = opened(library, path)
    np.savez(made, *(np.stack(column) for column in zip(*map(run, rows_of(data)), strict=True)))


def error(exact: np.ndarray, made: np.ndarray) -> float:
    """Norm of the difference over that of ``exact``."""
    return float(np.linalg.norm(made.astype(float) - exact) / np.linalg.norm(exact.astype(float)))


def sides_of(folder: Path, name: str, budget: float, picks: Sequence[float] = ()) -> dict[str, tuple[str, Path]]:
    """Library and file by the side's name."""
    place, sides = folder / name, {}
    for library in ("onnxruntime", "openvino"):
        sides[f"{library} float32 file"] = library, place / "model.onnx"
    for tool in (*TOOLS, *OF_TRANSFORMERS):
        for library in ("openvino", "onnxruntime"):
            if tool.startswith("nncf" if library == "onnxruntime" else "dynamic"):
                continue  # neither reads what the other's tool wrote
            sides[f"{tool} in {library}"] = library, _file(folder, name, tool)
    run = _run(folder, name, budget)
    sides[_answer(budget)] = "collage_evo", run / "best.collage"
    for picked in picks:
        sides[_answer(picked)] = "collage_evo", run / "picked" / f"{picked:g}" / "best.collage"
    return {side: both for side, both in sides.items() if both[1].exists()}


def _answer(budget: float) -> str:
    return f"collage_evo, {budget:g}"


def answer(folder: Path, name: str, budget: float, picks: Sequence[float] = ()) -> float:
    """Start a default run, and pick its answers for more budgets, unless that was done; seconds that the run took."""
    place, run = folder / name, _run(folder, name, budget)
    record = run.with_name(f"{run.name}.seconds")
    if not record.exists():
        began = time.monotonic()
        command = ["run", place / "model.onnx", "--data", place / "data.npz", "--budget", budget, "--out", run]
        subprocess.run([sys.executable, "-m", "collage_evo", *map(str, command), "--overwrite"], check=True)
        record.write_text(str(time.monotonic() - began))
    for picked in picks:
        subprocess.run([sys.executable, "-m", "collage_evo", "pick", run, "--budget", str(picked)], check=True)
    return float(record.read_text())


def _run(folder: Path, name: str, budget: float) -> Path:
    """Of the processor as it is held: what is found on one is not the other's."""
    from collage_evo.hardware.processor import level

    return folder / name / "-".join(filter(None, ("run", f"{budget:g}", level())))


def race(
    folder: Path,
    names: Sequence[str],
    output: Path,
    budget: float,
    rounds: int,
    seconds: float,
    picks: Sequence[float] = (),
) -> None:
    """Take turns, and print a table."""
    from turns import median_ms, ratio, take_turns

    from collage_evo.hardware.processor import this_machine
    from collage_evo.hardware.slots import usable_cores

    cpu, networks = this_machine().cpu, {}
    print(cpu, flush=True)
    for name in names:
        took = answer(folder, name, budget, picks)
        sides, errors = sides_of(folder, name, budget, picks), {}
        tools = json.loads((folder / name / "tools" / SECONDS).read_text())
        data, made = folder / name / "heldout.npz", folder / name / "made.npz"
        exact = _outputs("onnxruntime-exact", folder / name / "model.onnx", data, made)
        for side, (library, path) in list(sides.items()):
            try:
                errors[side] = max(map(error, exact, _outputs(library, path, data, made)))
            except subprocess.CalledProcessError:
                if path.parent.name != "tools":
                    raise
                print(f"{side} does not run", flush=True)
                del sides[side]
        turns = take_turns(
            {side: ("ordinary", library, str(path), str(data)) for side, (library, path) in sides.items()},
            usable_cores()[:1], rounds, seconds,
        )  # fmt: skip
        ms = {side: median_ms(turns, side) for side in sides}
        rivals = [side for side in sides if not side.startswith("collage_evo")]
        plain = min((side for side in rivals if "float32" in side), key=ms.__getitem__)
        gains: dict[tuple[str, str], Any] = {}
        for limit in (budget, *picks):
            best = min((side for side in rivals if errors[side] <= limit), key=ms.__getitem__)
            gains |= {(_answer(limit), rival): ratio(turns, rival, _answer(limit)) for rival in {best, plain}}
        seconds_of = {side: tools.get(side.split(" ")[0], 0.0) for side in rivals} | {_answer(budget): took}
        print(name, flush=True)
        for side in sorted(sides, key=ms.__getitem__):
            cells = f"{ms[side]:8.2f} ms  error {errors[side]:.4f}  {seconds_of.get(side, 0.0):5.0f} s"
            print(f"  {side:30} {cells}", flush=True)
        for (ours, rival), gain in gains.items():
            print(f"  {ours} is {gain} times as fast as {rival}", flush=True)
        raw = {side: [turn.times_ms for turn in turns[side]] for side in sides}
        networks[name] = {"seconds": seconds_of, "errors": errors, "ms": ms, "raw": raw,
                       "gains": {" over ".join(pair): str(gain) for pair, gain in gains.items()}}  # fmt: skip
        output.write_text(json.dumps({"cpu": cpu, "budget": budget, "networks": networks}))


def _outputs(library: str, path: Path, data: Path, made: Path) -> list[np.ndarray]:
    command = [sys.executable, __file__, "outputs", library, str(path), str(data), str(made)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    with np.load(made) as loaded:
        return [loaded[name] for name in loaded.files]


def main() -> None:
    if sys.argv[1:2] == ["outputs"]:
        outputs(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("export", "tools", "race", "all"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path, nargs="?", default=Path("ordinary.json"))
    parser.add_argument("--networks", nargs="+", help="all of torchvision's, unless given")
    parser.add_argument("--trained", action="store_true", help="trained networks instead")
    parser.add_argument("--budget", type=float, default=BUDGET, help="of the answer, and of tools to compare it with")
    parser.add_argument("--picks", type=float, nargs="*", default=(), help="smaller budgets of the same run")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    names = options.networks or list(NETWORKS)
    if options.trained and not options.networks:
        from ordinary_trained import TRAINED

        names = list(TRAINED)
    if options.step in ("export", "all"):
        export(options.folder, names)
    if options.step in ("tools", "all"):
        make_tools(options.folder, names)
    if options.step in ("race", "all"):
        race(options.folder, names, options.output, options.budget, options.rounds, options.seconds, options.picks)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
