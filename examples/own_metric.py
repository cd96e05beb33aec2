"""A metric of one's own: the answer may lose at most one percent of the right labels, whatever its relative error.

    python examples/own_metric.py

Shows data and a metric as functions of a file, which the processes that measure find by the file's name. The network
and the pictures are made here: their labels are what the network itself says in 32-bit floats, for most of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import collage_evo
from collage_evo.models.builtin import make_builtin

NETWORK, PICTURES, WRONG = "builtin:mobilenet_v2?size=32", 40, 4
Values = Mapping[str, Any]


def samples() -> Iterator[Values]:
    """A mapping of arrays for each picture; ``label`` is no input of the network, so it is for the metric."""
    model = make_builtin(NETWORK, seed=0)[1]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (name,), rng = [value.name for value in session.get_inputs()], np.random.default_rng(0)
    for index in range(PICTURES):
        picture = rng.standard_normal(session.get_inputs()[0].shape).astype(np.float32)
        label = session.run(None, {name: picture})[0].argmax()
        yield {name: picture, "label": np.int64(-1 if index < WRONG else label)}


def accuracy(outputs: Sequence[Values], items: Sequence[Values]) -> float:
    """Share of pictures whose label is right. ``outputs`` and ``items`` have a mapping for each sample."""
    right = [next(iter(out.values())).argmax() == item["label"] for out, item in zip(outputs, items, strict=True)]
    return float(np.mean(right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    here = Path(__file__).absolute()
    keys = {"accuracy.metric": f"{here}:accuracy"}
    found = collage_evo.optimize(NETWORK, data=f"{here}:samples", budget="1%", effort=args.effort, config=keys)
    print(found)


if __name__ == "__main__":
    main()
