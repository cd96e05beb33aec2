"""The runtime: loads and runs artifacts. Needs NumPy and the artifact's backends, nothing of the search.

A ``Session`` plans one arena from the tensors' lifetimes, binds every region to its buffers at load, and then calls
a flat tuple of bound calls: nothing is looked up, allocated or copied between regions. Running needs only
``pip install collage-evo`` with the extras of the artifact's backends; of the package it imports ``runtime``,
``backends``, ``target``, the modules of ``graph`` that only describe tensors and their memory, and
``errors``, and of other packages NumPy and those backends.

On the processor regions run one after the other. Parallel work is inside a region, under its backend's control
(``RunsPartsInParallel``).

Users hold a ``Session``: it has a ``Runner``, as described, for each profile, and chooses by the inputs' shapes. For
shapes of no profile it loads the fallback on first use: the whole model with open shapes, in the backend whose first
runs are the fastest over all profiles. First runs count, because a fallback gets new shapes, for which some
libraries compile anew. Only libraries that refuse shapes (``TakesOpenShapes.refuses_shapes``)
take part. Of a program for open inputs with a piece of another library, the fallback runs the first request of each
shape before the program does. Pieces whose shapes are open have no buffers: they return what their library
allocates. Sizes with one name in the user's file have to be equal.

Indices. ``graph/check/indices.py`` proves for each operator with indices, lengths, axes or shapes whether they stay
inside whatever a request holds: ``index_uses.py`` has the operators, ``value_ranges.py`` the known ranges of values.
Where a backend is not safe by itself (``Backend.guards``), ``Backend.takes`` and ``Compiler`` decline unproved
operators, and indices that are an input of the model have limits in the ``Program``, against which a ``Runner``
checks each request when it is fed. So have other 64-bit integers where a backend computes with 32 bits
(``Backend.bits``).
"""

__all__ = ["artifact", "session"]


def __dir__() -> list[str]:
    return __all__
