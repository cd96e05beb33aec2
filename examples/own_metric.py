"""A metric of one's own: the answer may lose at most one percent of the right labels, whatever its relative error.

    python examples/own_metric.py

Shows data and a metric as functions of a file, which the processes that measure find by the file's name. The network
tells in which of eight directions stripes run. Its convolutions are random, and its last layer is fitted here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import collage_evo
from collage_evo.models.builder import Builder

SIZE, DIRECTIONS, PICTURES = 64, 8, 240
Values = Mapping[str, Any]


def pictures(seed: int, count: int = PICTURES) -> Iterator[Values]:
    """A mapping of arrays for each picture; ``label`` is no input of the network, so it is for the metric."""
    rng, (y, x) = np.random.default_rng(seed), np.mgrid[:SIZE, :SIZE]
    for index in range(count):
        angle = np.pi * (label := index % DIRECTIONS) / DIRECTIONS
        stripes = np.sin(0.8 * (x * np.cos(angle) + y * np.sin(angle)) + 2 * np.pi * rng.random())
        noise = 1.2 * rng.standard_normal((1, 3, SIZE, SIZE))
        yield {"picture": (stripes + noise).astype(np.float32), "label": np.int64(label)}


def samples() -> Iterator[Values]:
    """Other pictures than those that the network was fitted to."""
    return pictures(seed=1)


def accuracy(outputs: Sequence[Values], items: Sequence[Values]) -> float:
    """Share of pictures whose label is right. ``outputs`` and ``items`` have a mapping for each sample."""
    right = [next(iter(out.values())).argmax() == item["label"] for out, item in zip(outputs, items, strict=True)]
    return float(np.mean(right))


def network(*head: np.ndarray) -> onnx.ModelProto:
    """Five convolutions, their mean over the picture, and the last layer's weights and bias if they are given."""
    net, rng, channels = Builder("stripes"), np.random.default_rng(0), 3
    x = net.input("picture", (1, channels, SIZE, SIZE))
    for width, stride in ((32, 1), (64, 2), (128, 1), (128, 2), (128, 1)):
        weights = rng.standard_normal((width, channels, 3, 3)) * np.sqrt(2 / (9 * channels))
        convolved = net.op("Conv", x, net.const(weights.astype(np.float32)), strides=[stride] * 2, pads=[1] * 4)
        x, channels = net.op("Relu", convolved), width
    means = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.op("Gemm", means, *map(net.const, head)) if head else means)


def fitted() -> onnx.ModelProto:
    """The network with a last layer by ridge regression."""
    session, items = onnxruntime.InferenceSession(network().SerializeToString()), list(pictures(seed=0))
    means = np.concatenate([session.run(None, {"picture": item["picture"]})[0] for item in items])
    targets = np.eye(DIRECTIONS)[[item["label"] for item in items]] - 1 / DIRECTIONS
    scaled = (means - means.mean(0)) / means.std(0)
    weights = np.linalg.solve(scaled.T @ scaled + np.eye(means.shape[1]), scaled.T @ targets) / means.std(0)[:, None]
    return network(weights.astype(np.float32), (-means.mean(0) @ weights).astype(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    here = Path(__file__).absolute()
    keys = {"accuracy.metric": f"{here}:accuracy"}
    result = collage_evo.optimize(fitted(), data=f"{here}:samples", budget="1%", effort=args.effort, config=keys)
    print(result)


if __name__ == "__main__":
    main()
