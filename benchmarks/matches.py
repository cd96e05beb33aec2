"""Matches of known networks by backend and pattern, and how long their enumeration takes.

    python benchmarks/matches.py [--models builtin:resnet50 ...]

Last comes a chain of 500 convolutions, each with its activation, with five backends, some twice if there are fewer.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Sequence

from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import Matches, enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.load import load_model
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.testing.models import chain

MODELS = ("builtin:resnet50", "builtin:mobilenet_v2", "builtin:bert?layers=1&length=128")
LONG = 500
"""Pairs of Conv and Relu."""


def count(name: str, graph: Graph, backends: Sequence[Backend]) -> Matches:
    """Enumerate and print a summary; the time is the processor's."""
    begin = time.process_time()
    found = enumerate_matches(graph, backends)
    seconds = time.process_time() - begin
    print(
        f"{name}: {len(graph.nodes)} nodes, {len(backends)} backends, {len(found.matches)} matches, {seconds:.2f} s; "
        f"{len(found.rejected)} candidates rejected; cut at the bound: {', '.join(found.cut) or 'none'}"
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    args = parser.parse_args()
    backends = select_backends(())
    for source in args.models:
        found = count(source, build_graph(normalise(load_model(source).original)), backends)
        number = Counter((match.backend, match.pattern) for match in found.matches)
        for backend in backends:
            names = [pattern.name for pattern in backend.patterns()]
            print(f"  {backend.name}: {', '.join(f'{name} {number[backend.name, name]}' for name in names)}")
    count("long chain", build_graph(chain(LONG)), list(itertools.islice(itertools.cycle(backends), 5)))


if __name__ == "__main__":
    main()
