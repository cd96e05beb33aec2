"""Models as graphs: read, prepared for running, normalised, split into regions.

``graph/prepare.py`` turns a file into a model that runs. ``graph/load/guess.py`` finds missing sizes by running the
model: a batch is 1, and of a size that the weights force only one runs. ONNX Runtime without optimisations computes
the reference outputs. The distance of its own optimised outputs from them is the model's noise: a backend may
differ by as much.

The same run, with every tensor as an output (``graph/convert/observe.py``), records all types and shapes, whatever
the operators. ``graph/convert/static.py`` proves operator by operator that a shape holds for all inputs: an output's
shape follows from the inputs' shapes and, for some operators, from inputs whose values must then be constant.
Constants found on the way are folded before anything else. ``graph/convert/composite.py`` merges the operators
between which a tensor without a static shape passes, with all on the paths between them, into one node of the domain
``COMPOSITE`` (strongly connected components); operators whose bodies read tensors around them are composites too. So
all borders between nodes are static, and patterns, costs and search need no special case. Only a graph's own inputs
and outputs may be open: these have no buffer, and a ``DynamicExecutable`` runs the piece that they belong to.

Normalisation tries from all rules to none (``Rules``), until the outputs stay the same. A file for which even that
fails (``NotSearchable``) runs whole. Matches are measured on random numbers, but integers, which may be indices or
lengths, and the inputs of composites have the values of the reference run (``recorded.npz``).

Users find nodes by the names in their file. ``graph/convert/origin.py`` gives the normalised model's nodes these
names, and records the fate of each node of the file: the passes preserve most tensors' names, and the nodes between
two tensors that both models have do the same work. Normalisation calls ``name_nodes`` before anything is saved.
"""
