"""Loads and runs artifacts. Needs numpy and the backends of the artifact, nothing of the search.

A ``Session`` plans one arena from the tensors' lifetimes, binds every region to its buffers at load, and then calls
a flat tuple of bound calls: nothing is looked up, allocated or copied between regions. ``pip install collage-evo``
with the extras of an artifact's backends is all that running needs; of the package it imports ``runtime``,
``backends``, ``devices``, ``target``, the modules of ``graph`` that only describe tensors and their memory, and
``errors``, and of others numpy and those backends.

On the processor regions run one after the other. What runs at the same time is inside a region, and its backend's
own business: see Lanes. ``lanes_of`` tells reports what each lane of a piece does.

What a person holds is a ``Session``: it has a ``Runner``, as described, for each profile, and chooses by the
inputs' shapes. For shapes of no profile it loads the fall-back when it is first needed: the model before its shapes
were fixed, whole, in the backend whose first runs are the fastest over all profiles. First runs count, because a
fall-back meets shapes that it has not met, for which some libraries compile anew. Only libraries that refuse shapes
which a model cannot take (``TakesOpenShapes.open_inputs``) take part. Pieces whose shapes are open have no
buffers: they give out what their library allocates. Sizes that go by one name in the person's file have to be equal.

Indices. ``graph/indices.py`` says of each operator with indices, lengths, axes or shapes whether they stay inside
whatever a request holds: ``index_uses.py`` has the operators, ``value_ranges.py`` what is known of values. Where a
backend is not safe by itself (``Backend.guards``), ``Backend.takes`` and ``Compiler`` decline what is not known,
and indices that are an input of the model have limits in the ``Program``, which a ``Runner`` holds each request
against when it is fed. So have other whole numbers of 64 bits where a backend computes with 32 (``Backend.bits``).
"""
