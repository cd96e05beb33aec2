"""Matches of known networks by backend and pattern, and how long their enumeration takes.

    python benchmarks/matches.py [--models builtin:resnet50 ...]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from collage_evo.backends.select import select_backends
from collage_evo.graph.load import load_model
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.patterns.enumerate import enumerate_matches

MODELS = ("builtin:resnet50", "builtin:mobilenet_v2", "builtin:bert?layers=1&length=128")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    args = parser.parse_args()
    backends = select_backends(())
    for source in args.models:
        graph = build_graph(normalise(load_model(source).original))
        begin = time.process_time()
        found = enumerate_matches(graph, backends)
        seconds = time.process_time() - begin
        print(
            f"{source}: {len(graph.nodes)} nodes, {len(found.matches)} matches in {seconds:.2f} s, "
            f"{len(found.rejected)} candidates rejected, cut at the bound: {', '.join(found.cut) or 'none'}"
        )
        count = Counter((match.backend, match.pattern) for match in found.matches)
        for backend in backends:
            patterns = ", ".join(f"{pattern.name} {count[backend.name, pattern.name]}" for pattern in backend.patterns())
            print(f"  {backend.name}: {patterns}")


if __name__ == "__main__":
    main()
