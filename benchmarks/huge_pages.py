"""What it is worth that the runtime puts a model's memory on huge pages: each artifact with and without, in turns.

    python benchmarks/huge_pages.py pages.json ARTIFACT... [--rounds 15] [--core 0]

Both sides are processes of their own. The ratio is the time with huge pages over that without, paired by round, with
a 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from turns import median_ms, ratio, take_turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--core", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for artifact in options.artifacts:
        sides = {kind: [kind, str(artifact)] for kind in ("session", "small_pages")}
        found = take_turns(sides, [options.core], options.rounds, options.seconds)
        share = ratio(found, "session", "small_pages")
        huge, small = (median_ms(found, kind) for kind in sides)
        print(f"{artifact}: {huge:.3f} ms, without huge pages {small:.3f} ms, ratio {share}", flush=True)
        turns = {side: [asdict(turn) for turn in own] for side, own in found.items()}
        rows.append({"artifact": str(artifact), "ratio": asdict(share), "turns": turns})
        options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
