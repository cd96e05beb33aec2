"""What a search measured of a small space, and a budget that some of it keeps."""

from __future__ import annotations

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.candidates import Tried
from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.encoding import encode, place
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match, Placement
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.state import Evaluated
from tests.support.spaces import make_graph

EXACT, LOW = "default", "bf16"
LIMIT = Limits(1e-3, 0.01)


def two_nodes() -> tuple[Tried, dict[str, Placement]]:
    """A chain of two nodes, each of which runs in float32 or bfloat16, and what a search measured of it."""
    matches = tuple(Match(1 << node, "openvino", variant) for node in range(2) for variant in (EXACT, LOW))
    borders = {match.engine: Border(0.0, 0.0) for match in matches}
    space = SearchSpace(make_graph([(), (0,)]), matches, CostModel((1.0,) * 4, borders))
    placements = {name: place(cover, space) for name, cover in
                  {"exact": (0, 2), "first": (1, 2), "last": (0, 3), "low": (1, 3)}.items()}  # fmt: skip
    outcomes = {
        "exact": Outcome(20.0, error=1e-6),
        "first": Outcome(14.0, error=9e-3),
        "last": Outcome(15.0, error=8e-3),
        "low": Outcome(9.0, error=2e-2),
    }
    origins = {"low": Origin(Way.DYNAMIC_PROGRAM, seeded=True)}
    evaluated = {}
    for name, found in outcomes.items():
        genome = encode(placements[name], space)
        evaluated[placements[name].key] = Evaluated(genome, found, origins.get(name, Origin(Way.MUTATION)), 1, 1, 1.0)
    return Tried(space, evaluated), placements
