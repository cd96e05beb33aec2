"""Installation commands of optional parts: the requirements themselves, since the package is on no index."""

from __future__ import annotations

import importlib.metadata
import re

_EXTRA = re.compile(r"""^(?P<what>[^;]+);.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")
_OWN = re.compile(r"^collage-evo\[(.+)\]")


def install(extra: str, package: str = "collage-evo") -> str:
    """The command that installs the requirements of the optional dependency ``extra`` of ``package``."""
    requirements = list(dict.fromkeys(_requirements(extra, package)))
    if not requirements:
        return f'pip install "{package}[{extra}]"'
    return f"pip install {' '.join(map(_quoted, requirements))}"


def _requirements(extra: str, package: str = "collage-evo") -> list[str]:
    try:
        lines = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    requirements: list[str] = []
    for line in lines:
        match = _EXTRA.match(line)
        if match is None or match["extra"] != extra:
            continue
        what = match["what"].strip()
        extras = _OWN.match(what)
        if extras:
            for name in extras[1].split(","):
                requirements += _requirements(name.strip())
        else:
            requirements.append(what)
    return requirements


def _quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"[<>=!~\[]", requirement) else requirement
