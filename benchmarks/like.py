"""Does a run that begins with another one's answer (``--like``) find as good an answer as a whole run, and how soon?

    python benchmarks/like.py like.json [--models network:densenet121 net.onnx ...] [--threads 1] [--folder runs]

Each network is searched as ``python -m collage_evo run`` does. Then it gets new weights, of another seed or, in a
file, its own with 1 % of noise, and is searched again twice: by a whole run, and like the first. Runs share costs and
compiled pieces only where the weights are the same, each kind of run has a cache of its own. Then both answers take
turns, each in a process of its own. The table is Markdown.

Rows that are in the file already are kept. With ``--folder`` so are runs that ended.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from networks import make_network, model_source
from onnx import numpy_helper
from rows import Rows, geometric_mean, markdown, show
from turns import median_ms, ratio, take_turns

from collage_evo.api import optimize
from collage_evo.config import Config, parse_config
from collage_evo.graph.files import save_model
from collage_evo.graph.load import load_model
from collage_evo.report.result import Result, result_in
from collage_evo.run.context import usable

MODELS = ("network:densenet121", "network:inception_v1", "network:nasnet_a", "builtin:resnet50")
NOISE = 0.01
"""Of each weight: new weights of a file."""
BEFORE, WHOLE, LIKE = "before", "whole", "like"


@dataclass(frozen=True)
class Row:
    """One network: what both ways took, in seconds and in ms, and how the answers compare."""

    model: str
    threads: int
    seconds: Mapping[str, float]
    first_answer: Mapping[str, float]
    answers: Mapping[str, str]
    errors: Mapping[str, float | None]
    ms: Mapping[str, float]
    share: tuple[float, float, float]
    """Time of the answer like the first over that of the whole run, and its 95 % interval."""

    @property
    def key(self) -> tuple[object, ...]:
        return self.model, self.threads


def measure(source: str, options: argparse.Namespace, folder: Path) -> Row:
    """All three runs of one network, then the turns."""
    folder.mkdir(parents=True, exist_ok=True)
    new = new_weights(source, folder)
    seconds: dict[str, float] = {}
    results: dict[str, Result] = {}
    runs = {
        BEFORE: settings(source, options, BEFORE, folder),
        WHOLE: settings(new, options, WHOLE, folder),
        LIKE: settings(new, options, BEFORE, folder, [f"search.like={folder / BEFORE}"]),
    }
    for name, config in runs.items():
        began = time.monotonic()
        place = folder / name
        found = result_in(place)
        if found is None:
            optimize(config.model.source, config=config, out=place, resume=place.exists())
            seconds[name] = time.monotonic() - began
            (place / "seconds.txt").write_text(str(seconds[name]))
            found = result_in(place)
        assert found is not None
        results[name], seconds[name] = found, float((place / "seconds.txt").read_text())
    sides = {name: ["session", str(folder / name / "best.collage")] for name in (WHOLE, LIKE)}
    cores = usable(runs[LIKE])[: options.threads]
    turns = take_turns(sides, cores, options.rounds, options.turn)
    share = ratio(turns, LIKE, WHOLE)
    return Row(
        source,
        options.threads,
        seconds,
        {name: found.wall_seconds["first answer at"] for name, found in results.items()},
        {name: found.answer for name, found in results.items()},
        {name: found.accuracy.error_held_out for name, found in results.items()},
        {name: median_ms(turns, name) for name in sides},
        (share.estimate, share.low, share.high),
    )


def settings(source: str, options: argparse.Namespace, cache: str, folder: Path, more: Sequence[str] = ()) -> Config:
    """Of one run: the usual ones, int8 with ranges from random inputs, a cache that only like runs share."""
    said = [
        f"target.threads={options.threads}",
        "accuracy.int8_without_data=true",
        f"cache.dir={folder / f'cache-{cache}'}",
        *options.set,
        *more,
    ]
    return parse_config({"model": {"source": model_source(source)}}, said, "benchmark")


def new_weights(source: str, folder: Path) -> str:
    """A file of the same network with other weights."""
    path = folder / "new.onnx"
    if not path.exists():
        if source.startswith("network:"):
            model = make_network(source, seed=1)
        elif source.startswith("builtin:"):
            model = load_model(source, seed=1).original
        else:
            model = onnx.load(source)
            rng = np.random.default_rng(0)
            for tensor in model.graph.initializer:
                values = numpy_helper.to_array(tensor)
                if values.dtype == np.float32 and values.size > 1:
                    moved = values * (1 + NOISE * rng.standard_normal(values.shape, np.float32))  # no sign changes
                    tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))
        save_model(model, path)
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each answer")
    parser.add_argument("--turn", type=float, default=0.5, help="seconds of a turn")
    parser.add_argument("--folder", type=Path, help="keeps the runs")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for the tool")
    options = parser.parse_args()
    rows = Rows(options.output, Row)
    table = markdown(
        "network", "whole run s", "like s", "first answer s", "whole ms", "like ms", "like over whole", "errors"
    )
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as work:
        for source in options.models:
            folder = (options.folder or Path(work)).absolute()
            row = rows.get((source, options.threads), folder, partial(measure, source, options))
            if row is None:
                continue
            shares.append(row.share[0])
            estimate, low, high = row.share
            table.add_row(
                Path(source).stem.partition(":")[2] or Path(source).stem,
                *(f"{row.seconds[name]:.0f}" for name in (WHOLE, LIKE)),
                f"{row.first_answer[LIKE]:.0f}",
                *(f"{row.ms[name]:.2f}" for name in (WHOLE, LIKE)),
                f"{estimate:.3f} [{low:.3f}, {high:.3f}]",
                " / ".join(
                    f"{row.errors[name]:.1e}" if row.errors[name] is not None else "-" for name in (WHOLE, LIKE)
                ),
            )
    show(table)
    if shares:
        print(f"like over whole, geometric mean of {len(shares)}: {geometric_mean(shares):.3f}")


if __name__ == "__main__":
    main()
