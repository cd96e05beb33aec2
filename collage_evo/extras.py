"""Installation commands of optional parts: the requirements themselves, since the package is on no index."""

from __future__ import annotations

import importlib.metadata
import re

_EXTRA = re.compile(r"""^(?P<what>[^;]+);.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")
_OWN = re.compile(r"^collage-evo\[(.+)\]")


def install(extra: str) -> str:
    """The command that installs the requirements of the optional dependency ``extra`` of this package."""
    found = list(dict.fromkeys(_requirements(extra)))
    return f"pip install {' '.join(map(_quoted, found))}" if found else f'pip install "collage-evo[{extra}]"'


def _requirements(extra: str) -> list[str]:
    try:
        requirements = importlib.metadata.requires("collage-evo") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for line in requirements:
        match = _EXTRA.match(line)
        if match is None or match["extra"] != extra:
            continue
        what = match["what"].strip()
        own = _OWN.match(what)
        found += [one for name in own[1].split(",") for one in _requirements(name.strip())] if own else [what]
    return found


def _quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"[<>=!~\[]", requirement) else requirement
