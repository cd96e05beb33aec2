"""What a run tells: of each result in ``approved``, its summary, its tables and the text of its page.

``APPROVE=1 python -m pytest tests/report/test_approved.py`` writes the files anew; ``git diff`` shows what changes.
"""

from __future__ import annotations

import os
import re
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from collage_evo.report.finished import Finished, read_finished
from collage_evo.report.html import REPORT, write_html, write_overview
from collage_evo.report.places import COMMAND
from collage_evo.report.summary import LINES, WIDTH, summary
from collage_evo.report.terminal import print_profiles, print_summary
from tests.support.results import APPROVED
from tests.support.terminal import fits, printed

NAMES = sorted(path.parent.name for path in APPROVED.glob("*/result.json"))
RUN = Path("runs/detector")
INSIDE = re.compile(
    r"\bseeds?\b|heat|taking turns|dp-|border|fusable|estimate|genome|incumbent|greedy|\bdp\b|single:|load s\b|"
    r"out-|crossover|mutation|anchor|openvino/|onnxruntime|far behind|\bdefault\b",
    re.IGNORECASE,
)
"""Words that only who wrote the program understands; docs/usage.md defines placement, baseline, region, candidate."""


def finished(name: str) -> list[Finished]:
    return read_finished(APPROVED / name)


def written(name: str, folder: Path) -> str:
    """The page of the result ``name``, written into ``folder``; of several profiles the overview."""
    found = finished(name)
    if len(found) == 1:
        write_html(folder / REPORT, found[0].result)
    else:
        write_overview(folder / REPORT, {f"profiles/{k}/{REPORT}": one for k, one in enumerate(found)}, folder)
    return (folder / REPORT).read_text()


class Text(HTMLParser):
    """Text of a page, a line for each block; cells of a row are separated by bars. Pictures are left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines, self._hidden = [""], 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in ("style", "svg")
        if tag in ("h1", "h2", "p", "li", "tr", "div", "summary", "title", "br"):
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "svg")
        self.lines[-1] += {"td": " | ", "th": " | ", "span": " "}.get(tag, "")

    def handle_data(self, data: str) -> None:
        self.lines[-1] += "" if self._hidden else data


def text_of(page: str) -> str:
    lines = (" ".join(line.split()).removesuffix(" |") for line in Text(page).lines)
    return "\n".join(filter(None, lines)) + "\n"


def outputs(name: str, folder: Path) -> dict[str, str]:
    """All that a run tells of the result ``name``, by file; commands and the folder have short names."""
    found = finished(name)
    end, tables = printed(partial(print_summary, found, RUN)), printed(partial(print_profiles, found))
    page = text_of(written(name, folder)).replace(str(folder), str(RUN))
    texts = {"summary.txt": end, "tables.txt": tables, "page.txt": page}
    texts = {file: text.replace(COMMAND, "collage-evo") for file, text in texts.items()}
    return {file: re.sub(" +$", "", text, flags=re.MULTILINE) for file, text in texts.items()}


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_the_approved_ones(name: str, tmp_path: Path) -> None:
    texts = outputs(name, tmp_path)
    assert fits(texts["tables.txt"])
    for file, text in texts.items():
        approved = APPROVED / name / file
        if os.environ.get("APPROVE"):
            approved.write_text(text)
        assert text == approved.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_fits_and_has_no_internal_words(name: str) -> None:
    found = finished(name)
    lines = summary(found, RUN)
    assert len(lines) <= LINES == 15
    assert all(len(line) <= WIDTH for line in lines if COMMAND not in line)
    assert INSIDE.findall(" ".join(lines)) == []
    temporary = "\n".join(summary(found, None))
    assert "result.save(PATH)" in temporary
    assert not re.search(rf"{re.escape(COMMAND)}|best\.collage|{APPROVED}", temporary)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible_and_needs_nothing_from_elsewhere(name: str, tmp_path: Path) -> None:
    page = written(name, tmp_path)
    first, *others = re.findall(r"<h(\d)", page)
    assert (first, {*others}) == ("1", {"2"})
    assert page.count("<th ") == len(re.findall(r'<th scope="(?:col|row|rowgroup)"', page)) > 0
    assert "<th>" not in page
    assert page.count("<table") == page.count('<div class="scroll"><table'), "nothing else is wider than the screen"
    assert 'name="viewport" content="width=device-width' in page
    assert "prefers-color-scheme: dark" in page
    for picture in re.findall(r"<svg[^>]*>.{9}", page, flags=re.DOTALL):
        assert 'aria-hidden="true"' in picture or (' role="img"' in picture and "><title" in picture), picture
    links = re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']+)", page)
    assert all(link.startswith(("#", "profiles/")) for link in links)
    assert not re.search(r"<(?:script|link|img|iframe)|@import|url\((?!#)", page)
    above = re.split("Latency against error|The model from input", page)[0]
    assert INSIDE.findall(text_of(above)) == []
