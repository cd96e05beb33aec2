"""Models as graphs: read, made ready, normalised, cut.

``graph/prepare.py`` makes of a file a model that runs. Sizes that nobody gave are found by running it
(``graph/guess.py``): a batch is 1, and of a size that the weights force only one runs. ONNX Runtime without
optimisations gives the reference outputs; how far its own optimisations are from them is the model's noise: a
backend may differ by as much.

The same run, with every tensor as an output (``graph/observe.py``), gives all types and shapes, whatever operators
there are. That a shape holds for all inputs is proved operator by operator (``graph/static.py``): an output's shape
follows from the inputs' shapes and, for some operators, from inputs whose values must then be constant. Constants
found on the way are folded before anything else. What is left without a static shape ties the operators that it
passes between into one node of the domain ``COMPOSITE``, with all on the paths between them
(``graph/composite.py``: strongly connected components); operators whose bodies read tensors around them are
composites too. So all borders between nodes are static, and patterns, costs and search need not know. Only a
graph's own inputs and outputs may be open: these have no buffer, and a ``DynamicExecutable`` runs the piece that
they belong to.

Normalising goes from all rules to none (``Rules``), until the outputs stay the same. A file for which even that
fails (``NotSearchable``) runs whole. Matches are measured on random numbers, but integers, which may be indices or
lengths, and what goes into composites have the values of the reference run (``recorded.npz``).

A person finds nodes by the names in their file. ``graph/origin.py`` gives the normalised model's nodes these names,
and tells for each node of the file what became of it: the passes keep most tensors' names, and what lies between
two tensors that both models have is the same work. ``name_nodes`` is called where a model is normalised, before
anything is saved.
"""
