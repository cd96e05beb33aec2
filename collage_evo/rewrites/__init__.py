"""Equal graphs that may run faster: what is rewritten where, and a region with that written into it.

A rewrite is written into a region when that is cut out of the graph (``rewrites/write.py``), as int8 is, so that
rewritten operators and those around them stand in one compiled piece. It says where it applies and what stands there
then; how to write one is in docs/rewrites.md. The graph that is searched stays as it is: nodes, tensors, covers and
genomes are of the normalised model.

A match with a rewrite has the nodes of its site, or these with the elementwise operators behind them, and an engine
of its own, ``VARIANT~REWRITE``, whose base is VARIANT (``backends/rewritten.py``). Backends are asked whether they
take what stands there after rewriting, so one may take a rewritten site of which it does not take the operators.
Every variant takes part that runs what stands there. Such an engine borders on others as its variant does
(``bordering`` in ``placement/cost_model.py``): borders are fitted for the base alone, a tensor passes free between
rewritten and plain parts of one piece, and the dynamic program, seeds, and the model that learns know base engines
only, so that more rewrites make none of them slower in that respect. Costs, estimates and what is refused are an
engine's own.

What a rewritten match costs is told by a profile of the model with as many sites rewritten as do not overlap. Where
the library has no profiler, such matches are timed alone, the weightiest first, and one that there is no time for
takes no part.

Cost keys and the content of pieces cover what was rewritten where, and the operators that the rewrite wrote, so a
changed rewrite has other keys. How precisions are written into what is rewritten, ``precision/transforms/`` says. A
backend alone, in baselines and seeds, is rewritten nowhere. What is rewritten in the answer is in ``result.json``, on
the page, in the terminal's table of regions, and told by ``explain``.
"""
