"""Sites of rewrites, as a piece records them: reading a record needs nothing that rewrites a model."""

from __future__ import annotations

from collage_evo.graph.ir.graph import NodeSet

Sites = tuple[tuple[str, NodeSet], ...]
"""The rewritten sites of a piece: names of rewrites with the node sets that they replace, disjoint, sorted."""
