"""Rewrites: equal operators that may run faster, where they apply, and regions with them.

``rewrites/write.py`` writes a rewrite into a region when the region is extracted from the graph, as int8 is, so that
one compiled piece holds rewritten operators and those around them. A rewrite defines its sites and their
replacements; docs/rewrites.md explains how to write one. The searched graph does not change: nodes, tensors, covers
and genomes are of the normalised model.

A match with a rewrite has the nodes of its site, or these with the elementwise operators behind them, and its own
engine, ``VARIANT~REWRITE``, whose base is VARIANT (``backends/rewritten.py``). Backends judge the replacement, so one
may take a rewritten site whose original operators it does not take. Every variant takes part that runs the
replacement. Such an engine has the borders of its variant (``bordering`` in ``genome/cost_model.py``): borders are
fitted only for the base, a tensor passes free between rewritten and plain parts of one piece, and the dynamic
program, seeds, and the surrogate have only base engines, so that more rewrites make none of them slower in that
respect. Costs, estimates and refusals belong to an engine.

A profile of the model with as many sites rewritten as do not overlap gives the cost of a rewritten match. Where the
library has no profiler, such matches are timed standalone, the heaviest first, and those without time left take no
part.

Cost keys and the content of pieces cover the rewritten sites and the operators that the rewrite wrote, so a changed
rewrite has other keys. ``precision/transforms/`` writes precisions into replacements. Baselines and seeds of a single
backend have no rewrites. ``result.json``, the page, the terminal's table of regions and ``explain`` show the rewrites
of the answer.
"""
