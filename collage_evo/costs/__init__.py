"""What matches and borders cost, measured or estimated, and the additive model made of both.

A match that is timed alone is timed as it will be paid inside the model: between runs, as many bytes are read as a
run of the whole model touches, so that weights are as cold as they would be, and inputs are written again, so that
they are warm. Each distinct structure is timed once and kept in SQLite under its structure, engine, backend
version, target and way of timing. A run directory keeps the space that was searched (``costs/saved_costs.py``): a
resumed run searches the same. ``costs.seconds`` bounds the time for all costs.

What matches cost comes from profiles of the whole model. A backend whose library has a profiler says so
(``HasProfiler`` in ``backends/profiled.py``: ONNX Runtime's ``enable_profiling``, OpenVINO's ``PERF_COUNT``).
``costs/measure_costs.py`` has each of its engines run all of the model that it takes, in float32, in bfloat16, with
int8 wherever it may be, and with each rewrite at all its sites; a region takes about a second after compiling. The
names of kernels are made of names of nodes and tensors in the piece, and ``measure/kernels.py`` tells from
these whose work each is. A kernel's time is that of the heavy operators in it, so an activation that is fused into a
convolution costs nothing, and all nodes of an engine together take what the whole model takes without the profiler
(``costs/profiles.py``): a model on one engine is predicted as it was measured. A match costs what its nodes
cost. The profile's times are lower quartiles over runs that begin at random moments, because a busy system takes the
core away at the same kernel of each run otherwise.

Kernels of libraries without a profiler are timed alone, the weightiest first, as long as ``costs.seconds`` allow,
and are scaled to what the whole model takes there, where a baseline tells it; the operators of each, timed alone
too, tell how its time is shared out (``costs/unprofiled.py``). What is not timed is as much slower than a
profile as the rest of its engine, and is marked as an estimate (``CostModel.estimated``). An engine three times as
slow as the best is not timed. ``benchmarks/prediction.py`` shows how near predictions come to what a search
measures.

Joined matches cost less than their parts apart, because nothing leaves the backend in between. So some thirty
random cuts of the model between the fastest engines, and between float32 and int8 inside a family, are measured as
whole models (``costs/border_probes.py``). What they take beyond their kernels is the price of borders:
``costs/borders.py`` fits, for each family, what one side of a border costs (fixed, and per byte), and what
an engine costs more, inside a piece too, such as writing integers. Where they say little the fit stays near to what
is usual, and a family that took no part is no better than the worst that did. What borders an engine has when it
runs the model alone is taken out of its kernels. The additive model charges a match's inner cost, and both sides of
every border crossed. Where engines of one family meet inside a piece, it charges what their borders have not in
common (``CostModel.joint_ms``). The dynamic program's bounds know that too (``search/cover/bounds.py``), so that
its optimum stays exact.

Profiles, borders and the model that learns from placements stay three. The first two are sums that the dynamic
program can optimise exactly, fitted before there is a placement; the third has features that it cannot (sizes of
regions, edges, pairs of backends), begins as that sum, and corrects it (``search/surrogate/model.py``).

On a target with a device beside the host, engines of both take part (``backends/variants.py``: ``serves``). A
tensor that is made in one memory and read or returned in another is copied, once for each memory, however many
engines read it there. ``costs/copies.py`` has copies of several sizes timed, there and back, in a measuring
process of the run, and fits a fixed part and one by the byte. The additive model charges them besides borders
(``CostModel.copies``), and a border stays what its engine alone makes of it. In the dynamic program a tensor's
state also says in which memories it is (``search/cover/movement.py``: ``Tariff``), so whoever reads it first in a
memory pays, and who reads it later does not; pairwise costs between engines would charge a copy for each reader. In
the bound all engines of the device share a part of their rewards, within what copies cost, as engines of one family
share what their borders have in common. So the optimum stays exact, and a target without a device has the states
and prices that it always had. Estimates, borders that could not be probed, and the roofline for tuning come from
engines of the same device.
"""
