"""Settings of Sphinx for ``make docs``. The source directory is the repository: documents link to files all over it.

Lists that the program knows better than a writer, of keys and of options, are made where a page has a line such as
``<!-- keys -->``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from sphinx.application import Sphinx

import collage_evo
from collage_evo.cli import app as commands
from collage_evo.config import Config

project = "collage_evo"
version = release = collage_evo.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "examples/README.md", "plugins/*/README.md"]
exclude_patterns = [".*", "build", "runs"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"{project} {release}"
html_additional_pages = {"index": "start.html"}
html_copy_source = html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 4
highlight_language = "text"
smartquotes = False  # they make one dash of the two of an option

autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


def keys(table: Mapping[str, Any], schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """A row for each key of ``table``, a part of the configuration's JSON ``schema``: name, default and meaning."""
    for name, field in table.get("properties", {}).items():
        inner = [one["$ref"] for one in (field, *field.get("allOf", ()), *field.get("anyOf", ())) if "$ref" in one]
        below = schema["$defs"][inner[0].rpartition("/")[2]] if inner else {}
        if "properties" in below:
            yield from keys(below, schema, f"{above}{name}.")
        else:
            default = field.get("default")
            shown = "" if default is None else f"`{default}`"
            yield f"| `{above}{name}` | {shown} | {cell(field.get('description', below.get('description', '')))} |"


def options() -> Iterator[str]:
    """Each command's help, and a table of its arguments and options."""
    for name, command in typer.main.get_command(commands).commands.items():  # type: ignore[attr-defined]
        yield from (f"## {name}", "", inspect.cleandoc(command.help or ""), "", "| option | meaning |", "|---|---|")
        for one in command.params:
            if not one.hidden:
                names = ", ".join(one.opts) if one.param_type_name == "option" else ""
                yield f"| `{' '.join(filter(None, (names, one.metavar)))}` | {cell(one.help)} |"
        yield ""


def cell(text: str | None) -> str:
    """Text as a table's cell, in which Markdown means nothing."""
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", " ".join((text or "").split()))


def fill(_: Sphinx, __: str, source: list[str]) -> None:
    """Put the lists in place of their lines."""
    schema = Config.model_json_schema()
    rows = ["| key | default | meaning |", "|---|---|---|", *keys(schema, schema)]
    source[0] = source[0].replace("<!-- keys -->", "\n".join(rows)).replace("<!-- options -->", "\n".join(options()))


def without_arguments(application: Sphinx, what: str, *_: object) -> tuple[str, None] | None:
    """No list of arguments for a record of ``result.json``: its fields follow."""
    return ("", None) if what == "class" and application.env.docname == "docs/reference/result_json" else None


def setup(application: Sphinx) -> None:
    application.connect("source-read", fill)
    application.connect("autodoc-process-signature", without_arguments)
