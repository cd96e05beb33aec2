"""Patterns: shapes of subgraph that backends can take, and how they are found.

A backend's ``patterns()`` propose node sets; ``backends/enumerate.py`` checks each with the backend, records the
reason of every refusal, and bounds their number. docs/patterns.md shows how to write patterns: drawn as functions
over operators (``patterns/language.py``, found by ``patterns/matcher.py``), or made from the graph by rules
(``patterns/fusion.py``, ``patterns/regions.py``).

The drawings resemble ``onnxscript.rewriter.pattern``, whose matcher was tried and cannot be wrapped: it finds one
match for each place (at a residual addition of two convolutions it never finds the second), takes no alternatives
where a pattern ends, has no chains, orders commutative inputs by copying the pattern (4,096 times for twelve
additions), and tries every combination of nodes for several ends. A rewriter needs one match for each place; a search
needs them all.
"""
