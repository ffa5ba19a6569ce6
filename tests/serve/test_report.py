"""`report` writes the overview as one file, which needs nothing else and runs nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.serve.live import HOSTILE_KEY, Live
from tests.support.tools.runs import Tools
from upgrade_tools.cli.exit_codes import ExitCode


class Reader(HTMLParser):
    """Notes the elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture
def tools(capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(capsys)


def test_the_report_is_one_file_without_scripts(standing: Live, tools: Tools, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ended = tools("report", standing.home / standing.name, "--output", file)
    assert ended.code == ExitCode.OK
    page = file.read_text(encoding="utf-8")
    read = Reader(page)
    names = {name for name, _ in read.elements}
    assert names.isdisjoint({"script", "img", "link", "iframe", "object", "base", "form", "a"})
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    policy = next(attributes["content"] for _, attributes in read.elements if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not re.search("[\u202e\x1b]", page)
    assert HOSTILE_KEY.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")[:100] in read.text
    for words in ("counts", "per-minute", "Batch", "123", "tenant", "large", "split"):
        assert words in read.text


def test_a_file_that_is_there_is_kept(standing: Live, tools: Tools, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine")
    ended = tools("report", standing.home / standing.name, "-o", file)
    assert (ended.code, file.read_text()) == (ExitCode.USAGE, "mine")
    assert "exists already" in ended.err


def test_what_has_no_head_is_not_reported(live: Live, tools: Tools, tmp_path: Path) -> None:
    for head in (live.home / live.name / "heads").iterdir():
        head.unlink()
    ended = tools("report", live.home / live.name, "-o", tmp_path / "page.html")
    assert ended.code == ExitCode.USAGE
    assert not (tmp_path / "page.html").exists()
    given = tools("report", live.home / live.name, "-o", tmp_path / "page.html", "--pointers", live.write_pointers())
    assert given.code == ExitCode.OK
