"""How often a race that stops when it is decided errs, and how many rounds it takes, on simulated noise.

    python benchmarks/stopping.py [--races 500] [--rounds 28] [--laps 14]

For each machine and each true speedup: how often the candidate wins, how often the interval holds the truth, rounds
in the mean and seldom; and how often it would win if at each look it was enough that an ordinary 95 % interval lay
above 1. *Wandering*: the ratio itself is another in other minutes, which no race that is over in one can see.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import repository  # noqa: F401
from rich.console import Console
from rich.table import Table

from collage_evo.answer.sequential import Stopping, mean_interval
from tests.support.races import Noise, logs_of, race_over, ratio_of

MACHINES = {
    "quiet": Noise(layout=0.005, lap=0.01),
    "busy": Noise(layout=0.005, lap=0.04),
    "busy, hit often": Noise(layout=0.005, lap=0.04, hit=0.3, hard=10.0),
    "shifting": Noise(layout=0.005, lap=0.01, drift=0.05, memory=0.3),
    "wandering": Noise(layout=0.005, lap=0.01, drift=0.005, memory=100.0),
}
SPEEDUPS = (0.97, 1.0, 1.01, 1.03, 1.1, 1.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=28, help="for which there is time: 4 of a model of a second")
    parser.add_argument("--laps", type=int, default=14, help="in a round: 2 of a model of a second")
    options = parser.parse_args()
    stopping, rng = Stopping(options.rounds), np.random.default_rng(0)
    table = Table("machine", "speedup", "wins", "interval holds it", "rounds", "95 % within", "wins, not corrected")
    for name, noise in MACHINES.items():
        for speedup in SPEEDUPS:
            truth = float(np.log(speedup))
            races = [noise.race(truth, stopping.rounds, rng, options.laps) for _ in range(options.races)]
            ended = [race_over(laps, stopping) for laps in races]
            ratios = [ratio_of(laps, stopping) for laps in ended]
            intervals = [(math.log(ratio.low), math.log(ratio.high)) for ratio in ratios]
            peeked = [any(mean_interval(logs_of(x)[:n])[0] > 0 for n in stopping.looks) for x in races]
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
