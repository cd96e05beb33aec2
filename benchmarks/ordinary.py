"""How fast is an answer on a processor without VNNI, beside float32 libraries and quantisation tools of equal error?

    TORCH_PYTHON benchmarks/ordinary.py export FOLDER [--networks inception_v3 vit_b_32 ...]
    python benchmarks/ordinary.py tools FOLDER
    python -m collage_evo run FOLDER/NAME/model.onnx --data FOLDER/NAME/data.npz --budget 0.02 --out FOLDER/NAME/run
    python benchmarks/ordinary.py race FOLDER output.json [--rounds 12] [--seconds 1.0] [--answers NAME=PATH ...]

``export`` writes networks of ordinary size with seeded random weights, and images for them; it needs torch, torchvision
and onnxscript, and nothing of this project. ``tools`` quantises each network by NNCF and by ONNX Runtime. ``race`` lets
the libraries, the tools' models and the answer take turns on one core, each in a process of its own with one thread.
Each side also computes its error in a process of its own: the relative 2-norm over all held-out samples, of the worst
output, against ONNX Runtime without optimisations. The table tells how many times as fast the answer is as the fastest
rival within ``--budget``, and as the fastest library in float32. The JSON file keeps the raw times.

Set ``COLLAGE_EVO_PROCESSOR=avx2`` for the run and the race: it hides VNNI and AVX-512 from every library.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, HELD_OUT = 48, 12
STATISTICS_BATCH, STATISTICS_PASSES = 8, 4
LARGEST_FILE = 1.9e9
"""Bytes of weights that still fit into one protobuf file."""


@dataclass(frozen=True)
class Network:
    """A function of torchvision, the side of its square input, and arguments besides ``weights=None``."""

    function: str
    side: int
    arguments: tuple[tuple[str, Any], ...] = ()
    transformer: bool = False


NETWORKS = {
    "inception_v3": Network("inception_v3", 299, (("init_weights", True),)),
    "densenet121": Network("densenet121", 224),
    "efficientnet_b0": Network("efficientnet_b0", 224),
    "regnet_y_3_2gf": Network("regnet_y_3_2gf", 224),
    "deeplabv3_mobilenet": Network(
        "segmentation.deeplabv3_mobilenet_v3_large", 448, (("weights_backbone", None), ("num_classes", 21))
    ),
    "vit_b_32": Network("vit_b_32", 224, transformer=True),
}


def main() -> int:
    args = _arguments()
    if args.command == "export":
        for name in args.networks or NETWORKS:
            export(NETWORKS[name], args.folder / name)
        return 0
    from ordinary_tools import Race, quantise, race

    names = args.networks or [name for name in NETWORKS if (args.folder / name / "model.onnx").exists()]
    if args.command == "tools":
        for name in names:
            quantise(args.folder / name, NETWORKS[name].transformer)
        return 0
    answers: dict[str, list[Path]] = {name: [] for name in names}
    for said in args.answers:
        name, _, path = said.partition("=")
        if name not in answers or not Path(path).exists():
            sys.exit(f"--answers {said}: the network or the path does not exist")
        answers[name].append(Path(path))
    race(args.folder, answers, Race(args.output, args.rounds, args.seconds, args.budget))
    return 0


def export(network: Network, folder: Path) -> None:
    """Write the network, and samples for the tools and for judging them."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    images = _images(SAMPLES + HELD_OUT, network.side)
    net = _network(network)
    _take_statistics(net, images[:SAMPLES])
    weights = sum(array.numel() * array.element_size() for array in net.state_dict().values())
    torch.onnx.export(
        net,
        (images[:1],),
        str(folder / "model.onnx"),
        input_names=["input"],
        output_names=["output"],
        opset_version=18,
        dynamo=True,
        external_data=weights > LARGEST_FILE,
        verbose=False,
    )
    samples = images.numpy()[:, None]
    np.savez(folder / "data.npz", input=samples[:SAMPLES])
    np.savez(folder / "heldout.npz", input=samples[SAMPLES:])
    print(f"{folder.name}: {weights / 1e6:.0f} MB of weights, input {list(samples.shape[1:])}", flush=True)


def _network(network: Network) -> Any:
    import torch

    module, _, function = f"models.{network.function}".rpartition(".")
    made = getattr(importlib.import_module(f"torchvision.{module}"), function)
    net = made(weights=None, **dict(network.arguments)).eval()
    for layer in net.modules():  # ViT's classifier begins at zero, where no error would be seen
        if isinstance(layer, torch.nn.Linear) and not layer.weight.any():
            torch.nn.init.trunc_normal_(layer.weight, std=0.02)
    return net


def _take_statistics(net: Any, images: Any) -> None:
    """Give BatchNorm the mean and variance of some ``images``, as training would leave them."""
    import torch

    layers = [layer for layer in net.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over all passes
        layer.train()
    with torch.no_grad():
        for batch in images.split(STATISTICS_BATCH)[: STATISTICS_PASSES if layers else 0]:
            net(batch)
    net.eval()


def _images(count: int, side: int) -> Any:
    """Smooth noise of several frequencies with discs and half-planes in front, normalised: [count, 3, side, side]."""
    import torch

    images = torch.zeros(count, 3, side, side)
    for grid, strength in ((3, 1.0), (7, 0.6), (17, 0.3), (41, 0.12)):
        noise = strength * torch.randn(count, 3, grid, grid)
        images += torch.nn.functional.interpolate(noise, size=(side, side), mode="bicubic", align_corners=True)
    y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    for image in images:
        for index in range(6):
            centre, size, angle = torch.rand(2) * 2 - 1, torch.rand(1), torch.rand(1) * 6.28
            colour = torch.randn(3, 1)
            across, down = x - centre[0], y - centre[1]
            disc = across**2 + down**2 < (0.1 + 0.4 * size) ** 2
            half = across * torch.cos(angle) + down * torch.sin(angle) > 0.5
            shape = half if index == 0 else disc
            image[:, shape] = 0.3 * image[:, shape] + colour
    return (images - images.mean()) / images.std()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("export", "write networks and data"), ("tools", "quantise them"), ("race", "compare their times"),
    ):  # fmt: skip
        command = commands.add_parser(name, help=what)
        command.add_argument("folder", type=Path)
        if name == "race":
            command.add_argument("output", type=Path, help="JSON file of raw times")
            command.add_argument("--rounds", type=int, default=12)
            command.add_argument("--seconds", type=float, default=1.0, help="of a turn")
            command.add_argument("--budget", type=float, default=0.02, help="largest error of a rival")
            command.add_argument(
                "--answers", nargs="+", default=[], metavar="NAME=PATH",
                help="artifacts for networks, in place of FOLDER/NAME/run/best.collage",
            )  # fmt: skip
        command.add_argument("--networks", nargs="+", choices=list(NETWORKS), help="all by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
