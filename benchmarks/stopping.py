"""How often a race that stops when it is decided errs, and how many rounds it takes, on noise without a clock.

    python benchmarks/stopping.py [--races 5000]

For each machine and each true speedup: how often the candidate wins, how often the interval holds the truth, rounds
in the mean and seldom; and how often it would win if at each look it was enough that an ordinary 95 % interval lay
above 1. *Wandering*: the ratio itself is another in other minutes, which no race that is over in one can see.
"""

from __future__ import annotations

import argparse

import numpy as np
import repository  # noqa: F401
from rich.console import Console
from rich.table import Table

from collage_evo.fitness.final.sequential import Stopping, mean_interval
from tests.support.races import Noise, race_over

MACHINES = {
    "quiet": Noise(layout=0.005, lap=0.01),
    "busy": Noise(layout=0.005, lap=0.04),
    "busy, hit often": Noise(layout=0.005, lap=0.04, hit=0.3, hard=10.0),
    "wandering": Noise(layout=0.005, lap=0.01, drift=0.005, memory=100.0),
}
SPEEDUPS = (0.97, 1.0, 1.005, 1.01, 1.02, 1.03, 1.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=5000)
    options = parser.parse_args()
    stopping, rng = Stopping(), np.random.default_rng(0)
    table = Table("machine", "speedup", "wins", "interval holds it", "rounds", "95 % within", "wins, not corrected")
    for name, noise in MACHINES.items():
        for speedup in SPEEDUPS:
            truth = float(np.log(speedup))
            races = [noise.rounds(truth, stopping.rounds, rng) for _ in range(options.races)]
            ended = [race_over(logs, stopping) for logs in races]
            intervals = [mean_interval(logs, stopping.significance) for logs in ended]
            peeked = [any(mean_interval(x[:n])[0] > 0 for n in stopping.looks) for x in races]
            lengths = list(map(len, ended))
            table.add_row(
                name,
                f"{speedup:g}",
                f"{np.mean([low > 0 for low, _ in intervals]):.1%}",
                f"{np.mean([low <= truth <= high for low, high in intervals]):.1%}",
                f"{np.mean(lengths):.1f}",
                f"{np.quantile(lengths, 0.95):.0f}",
                f"{np.mean(peeked):.1%}",
            )
    Console(width=118).print(table)


if __name__ == "__main__":
    main()
