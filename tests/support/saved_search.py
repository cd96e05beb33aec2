"""What a search does with saved costs: takes a JSON file of a model's matches and their costs, gives a record of it.

The costs are of the matches that ONNX Runtime and OpenVINO have in ``builtin:squeezenet``, drawn once by a seed. The
file also holds what the dynamic program and the search made of them; a change that is not to change the search keeps
that. One that is to writes it anew, and says why:

    python -m tests.support.saved_search
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import decode, place
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Tensor
from collage_evo.patterns.match import Match
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.seeds import make_seeds
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_graph

SAVED = Path(__file__).with_name("saved_search.json")
EVALUATIONS = 40
SETTINGS: Mapping[str, tuple[GaSettings, NonAdditive]] = {
    "defaults": (GaSettings(patience=0), NonAdditive(layout=0.5, region=0.03, contention=0.02)),
    "small_population": (
        GaSettings(patience=0, seed=1, population=8, offspring=4, screen_factor=4, climb=8),
        NonAdditive(layout=0.3, failures=0.02),
    ),
}


def saved_space(data: Mapping[str, Any]) -> SearchSpace:
    """The search space of the file: nodes with what they read and make (bytes), engines, borders, matches."""
    reads, sizes = zip(*data["nodes"], strict=True)
    graph = make_graph(reads)
    sized = zip(("x", *graph.producer), (data["input_bytes"], *sizes), strict=True)
    graph = replace(graph, tensors={name: Tensor(name, "uint8", (size,)) for name, size in sized})
    engines = [(backend, variant) for backend, variant in data["engines"]]
    matches = tuple(Match(int(nodes, 16), *engines[engine]) for nodes, engine, _ in data["matches"])
    borders = {engine: Border(*border) for engine, border in zip(engines, data["borders"], strict=True)}
    return SearchSpace(graph, matches, CostModel(tuple(ms for *_, ms in data["matches"]), borders))


def record(space: SearchSpace) -> dict[str, Any]:
    """The dynamic program's cheapest covers, the seeds, and what searches measured in which order and found."""
    program = cheapest_covers(space, k=5)
    return {
        "covers": [place(cover.matches, space).key for cover in program.covers],
        "cover_ms": [round(cover.cost_ms, 6) for cover in program.covers],
        "exact": program.exact,
        "seeds": [[str(kind), decode(genome, space).key] for kind, genome in make_seeds(space)],
        "searches": {name: _search(space, *how) for name, how in SETTINGS.items()},
    }


def _search(space: SearchSpace, settings: GaSettings, differs: NonAdditive) -> dict[str, Any]:
    target = SimulatedEvaluator(space, differs, noise=0.02)
    found = Evolution(space, target, settings, Budget(EVALUATIONS), lambda: 0.0, tuple(make_seeds(space))).run()
    return {
        "hall": list(found.hall),
        "best_ms": round(found.best_ms, 6),
        "unfit": sum(not one.outcome.ok for one in found.evaluated.values()),
        "measured": hashlib.sha256("\n".join(target.evaluated).encode()).hexdigest()[:16],
        "generator": hashlib.sha256(repr(found.rng).encode()).hexdigest()[:16],
    }


def main() -> None:
    data = json.loads(SAVED.read_text())
    data["expected"] = record(saved_space(data))
    SAVED.write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
