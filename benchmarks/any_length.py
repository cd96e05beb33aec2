"""How fast, how wrong and how steady each way is to serve a model with open sizes at every length.

    python benchmarks/any_length.py make encoder_6 FOLDER    # or another of any_length_networks.py
    python benchmarks/any_length.py race FOLDER [ARTIFACT] [--nncf PYTHON] [--budget 0.02] [--rounds 5]
    python benchmarks/any_length.py shapes FOLDER ARTIFACT [--number 500]
    python benchmarks/any_length.py memory FOLDER ARTIFACT
    python benchmarks/any_length.py fixed FOLDER ARTIFACT [--rounds 5]

``make`` writes a trained model from a package, 60 samples of real data of mixed sizes to search with (FOLDER/data, as
``--data`` takes it) and 60 others to judge by. ``race`` lets ONNX Runtime and OpenVINO in float32, OpenVINO as it
comes, ``quantize_dynamic`` with weights of 8 and 7 bits, NNCF (``--nncf`` names a Python that has it) and an answer
take turns on one core, each in a process of its own, with the model open to every size. In a turn each runs over all
held-out samples, so a latency is the one that is expected of such data, and at seven lengths. Errors are relative
2-norms against ONNX Runtime without optimisations, of the output that has the largest; so is how far rows move: in a
batch of eight of one length, and beside padding, with the mask if the model has one. Raw times go to
FOLDER/race.json, or to one that ``--out`` names.

``shapes`` runs requests of random sizes, within those of the data, through everything that serves the answer of a
run (RUN/best.collage): the session, the exported pipeline, its one file in ONNX Runtime, and the plug-in for ONNX
Runtime, if that is installed. All must agree, be near ONNX Runtime without optimisations, refuse what the model does
not take, and run on; with the one file ONNX Runtime itself takes sizes of one name that differ, where its operators
do. ``memory`` shows the memory of four sessions in threads over 10,000 requests of changing sizes. ``fixed`` lets the
session and the answer's one file, open and fixed to each of the seven lengths, take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, BATCH, ROUNDS, REPEATS = 60, 8, 5, 3
AT_LENGTH_S = 0.3
Feeds = dict[str, np.ndarray]
Outputs = Mapping[str, np.ndarray]
Run = Callable[[Feeds], Outputs]
Turns = Mapping[str, Sequence[Mapping[str, Any]]]
REFERENCE, ANSWER = "ONNX Runtime, float32", "collage_evo"
DYNAMIC = {"quantize_dynamic, 8 bits": False, "quantize_dynamic, 7 bits": True}
"""With ``reduce_range`` or without: pairs of products saturate in 16 bits where a processor has no VNNI."""
NNCF = "NNCF"
CLOCKS = ("wall", "processor")


def make(folder: Path, name: str) -> None:
    """Write the network, ``SAMPLES`` samples for a search and as many to judge by."""
    import onnx
    from any_length_networks import NETWORKS

    network = NETWORKS[name](2 * SAMPLES)
    for index, sample in enumerate(network.samples):
        part = folder / ("data" if index < SAMPLES else "held_out")
        part.mkdir(parents=True, exist_ok=True)
        np.savez(part / f"{index:03}.npz", **sample)  # type: ignore[arg-type]  # a sample has no allow_pickle
    onnx.save(network.model, folder / "model.onnx")
    about = {"axes": network.axes, "lengths": network.lengths, "batch": network.batch, "padding": network.padding}
    (folder / "about.json").write_text(json.dumps({**about, "text": network.text}))


def samples_of(folder: Path) -> list[Feeds]:
    """Of each file the arrays."""
    samples = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            samples.append(dict(arrays))
    return samples


class Data:
    """The held-out samples of a folder, and others made of them."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / "about.json").read_text())
        self.axes: Mapping[str, int] = about["axes"]
        self.lengths: Sequence[int] = about["lengths"]
        self.batch, self.padding, self.text = about["batch"], about["padding"], about["text"]
        self.samples = samples_of(folder / "held_out")

    def length(self, sample: Feeds) -> int:
        name, axis = next(iter(self.axes.items()))
        return int(sample[name].shape[axis])

    def of_length(self, sample: Feeds, length: int) -> Feeds:
        """The sample's beginning, or the sample again and again."""
        return {
            name: np.ascontiguousarray(np.take(array, range(length), self.axes[name], mode="wrap"))
            for name, array in sample.items()
        }

    def at_lengths(self) -> list[Feeds]:
        """The longest sample at each of the seven lengths."""
        longest = max(self.samples, key=self.length)
        return [self.of_length(longest, length) for length in self.lengths]

    def groups(self) -> Iterator[list[Feeds]]:
        """Samples by the number that makes a batch."""
        for begin in range(0, len(self.samples) - BATCH + 1, BATCH):
            yield self.samples[begin : begin + BATCH]

    def padded(self, sample: Feeds, length: int) -> Feeds:
        """The sample with what its model takes for nothing behind it."""
        extra = length - self.length(sample)
        widths = {
            name: [(0, extra if axis == self.axes[name] else 0) for axis in range(array.ndim)]
            for name, array in sample.items()
        }
        return {
            name: np.pad(array, widths[name], constant_values=self.padding[name]) for name, array in sample.items()
        }


def sides_of(folder: Path, artifact: Path | None, nncf: str) -> dict[str, tuple[str, ...]]:
    """Engine, file and OpenVINO's precision hint by contestant; what tools make is made once."""
    model = str(folder / "model.onnx")
    sides: dict[str, tuple[str, ...]] = {
        REFERENCE: ("onnxruntime", model, ""),
        "OpenVINO, float32": ("openvino", model, "f32"),
        "OpenVINO as it comes": ("openvino", model, ""),
    }
    for name, reduced in DYNAMIC.items():
        path = folder / f"dynamic{7 if reduced else 8}.onnx"
        if not path.exists():
            quantise_dynamically(folder, path, reduced)
        sides[name] = ("onnxruntime", str(path), "")
    path = folder / "nncf.xml"
    if nncf and not path.exists():
        subprocess.run([nncf, __file__, "nncf", str(folder)], check=True)
    if path.exists():
        sides[NNCF] = ("openvino", str(path), "f32")
    if artifact:
        sides[ANSWER] = ("collage_evo", str(artifact), "")
    return sides


def quantise_dynamically(folder: Path, path: Path, reduced: bool) -> None:
    """As ONNX Runtime advises: prepared first, weights by channel."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = folder / "prepared.onnx"
    quant_pre_process(str(folder / "model.onnx"), str(prepared), skip_symbolic_shape=True)
    # ConvInteger takes unsigned weights only.
    kind = QuantType.QUInt8 if _has(folder, "Conv") else QuantType.QInt8
    quantize_dynamic(str(prepared), str(path), per_channel=True, weight_type=kind, reduce_range=reduced)


def quantise_nncf(folder: Path) -> None:
    """With the samples at their own sizes; runs in a Python that has NNCF."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it reports over the network
    import nncf
    import openvino

    samples = samples_of(folder / "data")
    options: dict[str, Any] = {} if _has(folder, "Conv") else {"model_type": nncf.ModelType.TRANSFORMER}
    read = openvino.Core().read_model(str(folder / "model.onnx"))
    quantised = nncf.quantize(read, nncf.Dataset(samples), subset_size=len(samples), **options)
    openvino.save_model(quantised, str(folder / "nncf.xml"), compress_to_fp16=False)


def _has(folder: Path, operator: str) -> bool:
    import onnx

    return any(node.op_type == operator for node in onnx.load(folder / "model.onnx").graph.node)


def opened(folder: Path, side: Sequence[str]) -> Run:
    """A contestant's model on one thread."""
    from contest.engines import Served, open_served
    from native import onnxruntime_session

    import collage_evo  # noqa: F401  # holds the processor before a library is imported

    names = tuple(value.name for value in onnxruntime_session(folder / "model.onnx", 1).get_outputs())
    return open_served(Served(*side), 1, names)


def judge(folder: Path, *side: str) -> dict[str, float]:
    """Errors of a contestant over the held-out samples, and how far its rows move."""
    from native import onnxruntime_session

    run, data = opened(folder, side), Data(folder)
    session = onnxruntime_session(folder / "model.onnx", 1, optimised=False)
    sums: dict[str, list[tuple[float, float]]] = {}
    cosines, texts = [], []
    for sample in data.samples:
        made = run(sample)
        for value, right in zip(session.get_outputs(), session.run(None, sample), strict=True):
            exact, found = right.astype(float), made[value.name].astype(float)
            sums.setdefault(value.name, []).append((float(((found - exact) ** 2).sum()), float((exact**2).sum())))
            cosines.append(float((found * exact).sum() / (np.linalg.norm(found) * np.linalg.norm(exact))))
            texts.append(_text(found) == _text(exact))
    squares = np.array(list(sums.values()))  # [outputs, samples, 2]
    whole = squares.sum(1)
    figures = {
        "error": float(np.sqrt(whole[:, 0] / whole[:, 1]).max()),
        "worst": float(np.sqrt(squares[..., 0] / squares[..., 1]).max()),
        "cosine": min(cosines),
        **({"texts": float(np.mean(texts))} if data.text else {}),
    }
    for name, moves in _moves(run, data).items():
        figures |= {f"{name}_worst": float(np.max(moves)), f"{name}_mean": float(np.mean(moves))}
    return figures


def _text(scores: np.ndarray) -> list[int]:
    """Classes of the best path [1, steps, classes], repeats and blanks left out."""
    best = scores.argmax(-1)[0] if scores.ndim == 3 else np.zeros(0, int)
    return [int(now) for before, now in zip([0, *best], best, strict=False) if now and now != before]


def _moves(run: Run, data: Data) -> dict[str, list[float]]:
    """How far each row is from itself alone: in a batch of one length, and beside padding."""
    moves: dict[str, list[float]] = {}

    def outputs(feeds: Feeds) -> Outputs:
        return {name: array.copy() for name, array in run(feeds).items()}  # a library may reuse its own

    for group in data.groups():
        if data.batch:
            length = int(np.median([data.length(sample) for sample in group]))
            rows = [data.of_length(sample, length) for sample in group]
            made = outputs({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
            for index, row in enumerate(rows):
                among = {name: array[index : index + 1] for name, array in made.items()}
                moves.setdefault("batch", []).append(_moved(among, outputs(row)))
        longest = max(data.length(sample) for sample in group)
        for sample in group:
            if data.padding and data.length(sample) < longest:
                padded = outputs(data.padded(sample, longest))
                moves.setdefault("padding", []).append(_moved(padded, outputs(sample)))
    return moves


def _moved(made: Outputs, single: Outputs) -> float:
    """Relative, of the output that moves most; what is there only beside the padding does not count."""
    return max(
        float(np.linalg.norm(made[name][tuple(map(slice, right.shape))] - right) / np.linalg.norm(right))
        for name, right in single.items()
    )


def side(folder: Path, *how: str) -> None:
    """A contestant's process: for each line that it is told, ms of each sample and at each length."""
    run, data = opened(folder, how), Data(folder)
    at_lengths = data.at_lengths()
    for line in sys.stdin:
        order = random.Random(line).sample(range(len(data.samples)), len(data.samples))
        ms = {index: _ms(run, data.samples[index]) for index in order}
        fixed = [np.median([_ms(run, feeds) for _ in range(REPEATS + 1)][1:], 0).tolist() for feeds in at_lengths]
        print(json.dumps({"samples": [ms[index] for index in range(len(ms))], "lengths": fixed}), flush=True)


def side_at_lengths(folder: Path, *how: str) -> None:
    """As :func:`side`, at the lengths alone, each for ``AT_LENGTH_S``."""
    from any_length_shapes import opened_fixed

    data = Data(folder)
    run = opened_fixed(Path(how[1]), data) if how[0] == "fixed" else opened(folder, how)
    for _ in sys.stdin:
        lengths = []
        for feeds in data.at_lengths():
            run(feeds)
            taken: list[list[float]] = []
            end = time.perf_counter() + AT_LENGTH_S
            while len(taken) < REPEATS or time.perf_counter() < end:
                taken.append(_ms(run, feeds))
            lengths.append(np.median(taken, 0).tolist())
        print(json.dumps({"lengths": lengths}), flush=True)


def _ms(run: Run, feeds: Feeds) -> list[float]:
    """By each clock of ``CLOCKS``."""
    begins = time.perf_counter(), time.process_time()
    run(feeds)
    return [(time.perf_counter() - begins[0]) * 1e3, (time.process_time() - begins[1]) * 1e3]


def take_turns(folder: Path, sides: Mapping[str, Sequence[str]], rounds: int, what: str = "side") -> Turns:
    """Rounds by contestant, in another order each; the first one warms up and does not count."""
    from collage_evo.hardware.slots import acquire_slot, usable_cores

    core = usable_cores()[0]
    slot = acquire_slot(((core,),))
    assert slot is not None  # it waits for ever
    pipe = subprocess.PIPE
    processes = {
        name: subprocess.Popen(_command(what, folder, how), stdin=pipe, stdout=pipe, text=True, env=_environment(),
                               preexec_fn=lambda: os.sched_setaffinity(0, [core]))
        for name, how in sides.items()
    }  # fmt: skip
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    try:
        for index in range(rounds + 1):
            for name in random.Random(index).sample(list(sides), len(sides)):
                process = processes[name]
                assert process.stdin is not None
                assert process.stdout is not None
                print(index, file=process.stdin, flush=True)
                turn = json.loads(process.stdout.readline())
                turns[name] += [turn] if index else []
    finally:
        for process in processes.values():
            process.kill()
        slot.release()
    return turns


def _command(what: str, folder: Path, how: Sequence[str]) -> list[str]:
    return [sys.executable, __file__, what, str(folder), *how]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def race(options: argparse.Namespace) -> None:
    """Judge everybody, let them take turns, and print a table."""
    from collage_evo.hardware.processor import level, this_machine

    folder = options.folder
    sides, judged = sides_of(folder, options.artifact, options.nncf), {}
    for name, how in list(sides.items()):
        done = subprocess.run(_command("judge", folder, how), capture_output=True, text=True, env=_environment())
        if done.returncode:
            print(f"{name} is left out: {done.stderr.strip().splitlines()[-1]}", flush=True)
            del sides[name]
        else:
            judged[name] = json.loads(done.stdout)
    turns = take_turns(folder, sides, options.rounds)
    about = {"cpu": this_machine().cpu, "level": level(), "lengths": Data(folder).lengths, "clocks": CLOCKS}
    out = options.out or folder / "race.json"
    out.write_text(json.dumps({**about, "judged": judged, "turns": turns}))
    print(f"{about['cpu']}: ms at {', '.join(map(str, about['lengths']))}, {options.clock} clock")
    show(judged, turns, CLOCKS.index(options.clock), options)


def show(judged: Mapping[str, Mapping[str, float]], turns: Turns, clock: int, options: argparse.Namespace) -> None:
    """Print everybody's figures, and how much faster each is than the fastest that keep float32, error or cosine."""
    from collage_evo.answer.sequential import Ratio

    times = {name: np.array([turn["samples"] for turn in taken])[..., clock] for name, taken in turns.items()}
    expected = {name: float(np.median(each, 0).mean()) for name, each in times.items()}
    fixed = {name: np.median([turn["lengths"] for turn in taken], 0)[:, clock] for name, taken in turns.items()}
    for name in sorted(turns, key=expected.__getitem__):
        figures = ", ".join(f"{key} {value:.4g}" for key, value in judged[name].items())
        print(f"  {name:26} {expected[name]:8.2f} ms | {' / '.join(f'{ms:.3g}' for ms in fixed[name])} | {figures}")
    rivals = [name for name in turns if name != ANSWER]
    plain = [name for name in rivals if "float32" in name]
    exact = [name for name in rivals if judged[name]["error"] <= options.budget]
    alike = [name for name in rivals if judged[name]["cosine"] >= options.cosine]
    best = {min(names, key=expected.__getitem__) for names in (plain, exact, alike)}
    for name in [ANSWER] if ANSWER in turns else sorted(turns):
        for other in sorted(best - {name}):
            gain = Ratio.of(np.log(times[other].mean(1) / times[name].mean(1)).tolist())
            print(f"  {name} is {gain} times as fast as {other}")
    if ANSWER in turns:
        gains = np.min([fixed[name] for name in plain], 0) / fixed[ANSWER]
        at = " / ".join(f"{gain:.3g}" for gain in gains)
        print(f"  {ANSWER} is {at} times as fast as the faster float32 library at each length")


def main() -> None:
    if sys.argv[1:2] == ["judge"]:
        print(json.dumps(judge(Path(sys.argv[2]), *sys.argv[3:])))
    elif sys.argv[1:2] == ["side"]:
        side(Path(sys.argv[2]), *sys.argv[3:])
    elif sys.argv[1:2] == ["lengths"]:
        side_at_lengths(Path(sys.argv[2]), *sys.argv[3:])
    elif sys.argv[1:2] == ["nncf"]:
        quantise_nncf(Path(sys.argv[2]))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        steps = parser.add_subparsers(dest="step", required=True)
        making, racing = steps.add_parser("make"), steps.add_parser("race")
        making.add_argument("name")
        making.add_argument("folder", type=Path)
        racing.add_argument("folder", type=Path)
        racing.add_argument("artifact", type=Path, nargs="?")
        racing.add_argument("--nncf", default="", metavar="PYTHON")
        racing.add_argument("--budget", type=float, default=0.02, help="largest error of a rival")
        racing.add_argument("--cosine", type=float, default=0.98, help="least cosine of a rival")
        racing.add_argument("--rounds", type=int, default=ROUNDS)
        racing.add_argument("--clock", choices=CLOCKS, default=CLOCKS[0], help="the processor's on a busy machine")
        racing.add_argument("--out", type=Path)
        for step in ("shapes", "memory", "fixed"):
            serving = steps.add_parser(step)
            serving.add_argument("folder", type=Path)
            serving.add_argument("artifact", type=Path)
            serving.add_argument("--number", type=int, default=500, help="random shapes")
            serving.add_argument("--rounds", type=int, default=ROUNDS)
            serving.add_argument("--clock", choices=CLOCKS, default=CLOCKS[0])
        options = parser.parse_args()
        if options.step == "make":
            make(options.folder, options.name)
        elif options.step == "race":
            race(options)
        else:
            import any_length_shapes

            sys.exit(not getattr(any_length_shapes, options.step)(options))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
