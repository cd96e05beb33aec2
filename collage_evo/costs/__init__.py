"""Costs of matches and borders, measured or estimated, and the additive model made of both.

A match that is timed standalone is timed at its cost inside the model: between runs, as many bytes are read as a run
of the whole model touches, so that weights are as cold as they would be, and inputs are written again, so that they
are warm. Each distinct structure is timed once and kept in a file under its structure, engine, backend version,
target and way of timing. A run directory contains the space that was searched (``costs/saved_costs.py``): a resumed
run searches the same. ``costs.seconds`` bounds the time for all costs.

Costs of matches come from profiles of the whole model. A backend whose library has a profiler implements
``HasProfiler`` in ``backends/profiled.py`` (ONNX Runtime's ``enable_profiling``, OpenVINO's ``PERF_COUNT``).
``costs/measure_costs.py`` makes each of its engines run all of the model that it supports, in float32, in bfloat16,
with int8 wherever that is allowed, and with each rewrite at all its sites; a region takes about a second after
compiling. Kernels are named after nodes and tensors in the piece, from which ``fitness/kernels.py`` finds the nodes
of each kernel. A kernel's time belongs to the heavy operators in it, so an activation that is fused into a
convolution costs nothing, and all nodes of an engine together take as long as the whole model without the profiler
(``costs/profiles.py``): the prediction for a model on one engine equals its measurement. A match costs the sum of its
nodes. The profile's times are lower quartiles over runs that begin at random moments, because otherwise a busy system
takes the core away at the same kernel of each run.

Kernels of libraries without a profiler are timed standalone, the most expensive first, as long as ``costs.seconds``
allow, and are scaled to the whole model's latency on that engine, if a baseline has it; the operators of each, timed
standalone too, determine how its time is apportioned (``costs/unprofiled.py``). What is not timed is assumed to be as
much slower than a profile as the rest of its engine, and is marked as an estimate (``CostModel.estimated``). An
engine three times as slow as the best is not timed.

Joined matches cost less than their parts separately, because nothing leaves the backend in between. So some thirty
border probes, random cuts of the model between the fastest engines, and between float32 and int8 inside a family, are
measured as whole models (``costs/borders.py``). Their time beyond their kernels is the price of borders:
``costs/borders.py`` fits, for each family, the cost of one side of a border (fixed, and per byte), and the additional
cost of an engine, inside a piece too, such as writing integers. Where the probes carry little information the fit
stays near the prior, and a family without probes is no better than the worst one with. The borders that an engine has
when it runs the whole model are subtracted from its kernels. The additive model charges a match's inner cost, and
both sides of every border crossed. Where engines of one family meet inside a piece, it charges the part of their
borders that they do not have in common (``CostModel.joint_ms``). The dynamic program's bounds include that too
(``genome/cover/bounds.py``), so that its optimum stays exact.

Profiles, borders and the model that learns from placements are three separate models. The first two are sums that the
dynamic program can optimise exactly, fitted before there is a placement; the third has features that it cannot (sizes
of regions, edges, pairs of backends), begins as that sum, and corrects it (``search/surrogate/model.py``).

On a target with an accelerator in addition to the host, engines of both take part (``backends/variants.py``:
``serves``). A tensor that is produced in one memory and read or returned in another is copied, once for each memory,
however many engines read it there. ``costs/copies.py`` times copies of several sizes, there and back, in a worker
process of the run, and fits a fixed part and one per byte. The additive model charges them in addition to borders
(``CostModel.copies``); a border contains only the cost of its engine. In the dynamic program a tensor's state also
includes the memories that hold it (``genome/cover/movement.py``: ``Tariff``), so the first reader in a memory pays,
and later readers do not; pairwise costs between engines would charge a copy for each reader. In the bound all engines
of the accelerator share a part of their rewards, within the cost of copies, as engines of one family share what their
borders have in common. So the optimum stays exact, and a target without an accelerator has the states and prices that
it always had. Estimates, borders that could not be probed, and the roofline for tuning come from engines of the same
memory.
"""
