"""Timeline of a trace in the Chrome trace event format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collage_evo.files import write_whole
from collage_evo.report.words import title
from collage_evo.runtime.trace import Event


def write_timeline(path: Path, events: Sequence[Event], name: str) -> None:
    """Write the ``events`` of the artifact ``name``: on the track of the thread that called them the regions, and in
    these their operators.

    Raises:
        OSError: the file cannot be written.
    """
    names = {("process_name", 0): name, **{("thread_name", event.thread): "calling thread" for event in events}}
    shown = [
        {"ph": "M", "name": kind, "pid": 1, "tid": thread, "args": {"name": text}}
        for (kind, thread), text in names.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"traceEvents": [*shown, *map(_shown, events)], "displayTimeUnit": "ms"}))


def _shown(event: Event) -> Mapping[str, Any]:
    # Eighths of a microsecond are exact in binary: readers convert to nanoseconds, where rounding would let spans
    # overlap that only touch.
    begin, end = (round(8 * us) / 8 for us in (event.start_us, event.start_us + event.us))
    return {
        "ph": "X",
        "cat": "operator" if event.operator else "region",
        "name": event.operator or f"region {event.region}: {title(event.library)} in {event.precision}",
        "ts": begin,
        "dur": end - begin,
        "pid": 1,
        "tid": event.thread,
        "args": {
            "library": title(event.library),
            "precision": event.precision,
            "run": event.run,
            "nodes": ", ".join(event.nodes) if event.operator else f"{len(event.nodes)} of the model",
            "label": event.label,
            "time": "mean of all runs, in the library's order" if event.placed else "of this run",
        },
    }
