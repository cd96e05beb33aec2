"""Probes of backends from other packages, each in a process of its own: code of theirs may exit, hang or print."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

from collage_evo.backends.base import Backend, Probe
from collage_evo.codec import from_json, to_json
from collage_evo.errors import named_line
from collage_evo.modules import module_command

PROBED = "COLLAGE_EVO_PROBED"
"""Variable of a measuring process: what :func:`known_probes` gave in the process that started it."""
TIMEOUT_S = 30.0
"""Seconds for one probe. Chosen: importing PyTorch takes ten on a busy machine."""
_known: dict[str, Probe] = from_json(os.environ.get(PROBED, "{}"), dict[str, Probe])


def known_probes() -> str:
    """The probes that were made, for processes that this one starts."""
    return to_json(_known)


def probe_elsewhere(entries: Mapping[str, EntryPoint], timeout_s: float = TIMEOUT_S) -> dict[str, Probe]:
    """The probe of each backend by its name; they run at the same time, and once in a process's life."""
    asked = {f"{name} = {entry.value}": entry for name, entry in entries.items()}
    if new := {key: entry for key, entry in asked.items() if key not in _known}:
        with ThreadPoolExecutor(len(new)) as pool:
            _known.update(zip(new, pool.map(partial(_ask, timeout_s), new.values()), strict=True))
    return {entry.name: _known[key] for key, entry in asked.items()}


def _ask(timeout_s: float, entry: EntryPoint) -> Probe:
    what, answer, code = f"backend {entry.name!r} ({entry.value})", "", 0
    path = os.pathsep.join(place for place in sys.path if place)
    with tempfile.NamedTemporaryFile("r", prefix="collage_evo-") as file:
        command = [*module_command(__name__), file.name, entry.name, entry.value, entry.group]
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                timeout=timeout_s,
            ).returncode
            answer = file.read()
            return from_json(answer, Probe)
        except subprocess.TimeoutExpired:
            why = f"gave no answer within {timeout_s:g} s"
        except Exception as error:
            ended = not answer and not isinstance(error, OSError)
            why = f"ended its process with exit code {code}" if ended else f"gave no Probe: {named_line(error)}"
    return Probe(False, reason=f"{what} {why}: mend or uninstall its package")


def _answer(file: str, name: str, value: str, group: str) -> None:
    """Probe a backend, and write the answer to ``file``."""
    try:
        backend = EntryPoint(name, value, group).load()()
        if not isinstance(backend, Backend):
            raise TypeError("it is no collage_evo Backend")
        text = to_json(backend.probe())
    except Exception as error:
        text = to_json(Probe(False, reason=f"backend {name!r} ({value}) cannot be loaded: {named_line(error)}"))
    Path(file).write_text(text)
    os._exit(0)  # its threads may not end


if __name__ == "__main__":
    _answer(*sys.argv[1:])
