"""How well the errors of single operators predict the error of a placement.

    python benchmarks/predicted_error.py predicted.json runs/one [runs/two ...]

Each argument is the directory of a run with a choice of precision. Of every placement that it measured in a lower
precision: the root of the summed shares of its operators (before anything was learned from placements), over the
error that was measured.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import repository  # noqa: F401
from scipy.stats import spearmanr

from collage_evo.genome.encoding import decode
from collage_evo.run.recorded import read_run
from tests.support.precise import predicted_error

LEAST = 1e-4
"""A smaller error is that of float32."""


def pairs(run: Path) -> list[tuple[float, float]]:
    """Predicted and measured relative error of each placement that ``run`` measured in a lower precision."""
    recorded = read_run(run)
    space = recorded.space
    if not space.terms:
        raise SystemExit(f"{run} had no choice of precision")
    found = []
    for one in recorded.evaluated.values():
        error = one.outcome.error
        if one.outcome.ok and error is not None and error > LEAST:
            found.append((predicted_error(space, decode(one.genome, space)), error))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    rows = {}
    for run in options.runs:
        rows[str(run)] = found = pairs(run)
        if not found:
            print(f"{run}: nothing was measured in a lower precision")
            continue
        ratios = np.array([predicted / measured for predicted, measured in found])
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        order = spearmanr(*zip(*found, strict=True)).statistic
        print(
            f"{run}: {len(found)} placements, predicted over measured {middle:.2f} (80 % within {low:.2f} to "
            f"{high:.2f}), rank correlation {order:.2f}"
        )
    options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
