"""Each worker of pytest-xdist is a machine of its own as far as locks go, for the tests of plug-ins too."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

# Before NumPy is imported, here and in whatever a test starts: its threads turn a norm of 4 µs into one of 1.2 ms
# where tests keep all cores busy. Measuring processes have one anyway.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

from collage_evo.backends.probing import PROBED, known_probes
from collage_evo.backends.registry import probe_backend

# The same examples each time, however long each takes: whether a test passes depends on the code alone.
hypothesis.settings.load_profile("ci")


FIRST = (
    *("test_numerics.py", "test_two_devices.py", "test_rewrites.py", "test_sweep.py", "test_cluster.py"),
    *("test_faults.py", "test_finished_run.py", "test_evolution.py", "test_measure_costs.py", "test_pick.py"),
    *("test_profiles.py", "test_stop.py", "test_conformance.py", "test_plain.py", "test_examples.py", "test_api.py"),
    "test_conformance_device.py",
)
"""Files that take longest, and long ones that would come at the end: one that began last would leave the other worker
without work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, all else in its order; ``--no-loadscope-reorder`` keeps workers to that."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture(scope="module", autouse=True)
def garbage_is_of_this_module() -> None:
    """What is there before a module's tests stays to the end: garbage collection need not walk it.

    Each test of a device asks for two collections, which take 0.3 s where all libraries have been imported.
    """
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C is there to be tested. Runs of one machine wait for each other's cores; those of two workers would, and
    for no test's sake.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as whoever is begun in a script's background inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("XDG_RUNTIME_DIR", None)  # a test of its own says where runs meet by TMPDIR
    state = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="state-")  # a person's own stays as it is
    config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        if config.getoption("numprocesses", default=None):
            # Or else each command that a test starts would probe each plug-in anew, which takes two seconds.
            probe_backend("onnxruntime")
            os.environ[PROBED] = known_probes()
        return
    own = tempfile.mkdtemp(prefix=f"{worker}-")
    os.environ["TMPDIR"] = tempfile.tempdir = own
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))


@pytest.fixture(autouse=True)
def cores_stay() -> Iterator[None]:
    """A test leaves the process on the cores on which it found it, whatever ran inside keeps to."""
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)
