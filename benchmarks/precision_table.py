"""The tables and means of races that ``precision.py`` has written, one task a file.

python benchmarks/precision_table.py FOLDER/*/1*.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from contest.race import Race, read_race
from contest.table import Standing, Table, summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    standings = [one for path in args.files for one in shown(read_race(path))]
    print(*summary(standings), sep="\n")
    return 0


def shown(race: Race) -> Iterable[Standing]:
    """Print the race's table; gives how each of ours stands at each budget."""
    try:
        table = Table(race)
    except ValueError as error:
        print(error, flush=True)
        return []
    print(*table.lines(), sep="\n", flush=True)
    return [one for budget in race.task.budgets for one in table.standings(budget)]


if __name__ == "__main__":
    sys.exit(main())
