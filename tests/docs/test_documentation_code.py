"""The code on the documentation's pages runs, and prints what the pages say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.documentation import (
    PAGES,
    ROOT,
    PageError,
    blocks_of,
    broken_links,
    missing_files,
    needs_spark,
    python_of,
    run_page,
)

COOKBOOK = ROOT / "docs" / "cookbook"
FRAGMENTS = {
    "docs/migrating-from-spark-state.md": "both programs are in docs/examples, and tests run and compare them",
    "docs/spark-connect.md": "needs a server of Spark Connect; tests/spark/test_connect_queries.py has such queries",
}
"""Pages whose code is not run at all, and why."""


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN = [page for page in PAGES if python_of(page) and named(page) not in FRAGMENTS]


def marked(page: Path) -> Any:
    imports_spark = any("statestore.spark" in block.text for block in python_of(page) if not block.needs_spark)
    return pytest.param(page, id=named(page), marks=[pytest.mark.spark] if imports_spark else [])


@pytest.mark.parametrize("page", [marked(page) for page in RUN])
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology_test_driver: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = [block for block in python_of(page) if not (block.not_run or block.needs_spark)]
    assert run, "a page of Spark alone: show it under a TopologyTestDriver, too"
    run_page(page, with_spark=False, fixtures={"topology_test_driver": topology_test_driver})


def test_what_is_not_run_is_known() -> None:
    assert [named(page) for page in RUN if any(block.not_run for block in python_of(page))] == []
    assert set(FRAGMENTS) == {named(page) for page in PAGES if named(page) in FRAGMENTS and python_of(page)}


def test_every_recipe_runs_and_is_in_the_index() -> None:
    recipes = {page for page in COOKBOOK.glob("*.md") if page.name != "README.md"}
    assert recipes <= set(RUN)
    index = (COOKBOOK / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted(recipes) if f"]({page.name})" not in index] == []


def test_some_recipes_run_on_spark() -> None:
    on_spark = {page.name for page in RUN if needs_spark(page)}
    assert on_spark >= {"running-total.md", "notebooks.md"}


def test_the_tutorial_is_short() -> None:
    """Job, unit test and a look at the state; what is imported, and the orders, don't count."""
    blocks = [block.text for block in python_of(ROOT / "docs" / "tutorial.md") if "write_text(" not in block.text]
    lines = [line for text in blocks for line in text.splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("from ", "import "))]) <= 25


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    assert missing_files(page) == []


def page_with(directory: Path, text: str) -> Path:
    page = directory / "page.md"
    page.write_text(text.replace("~~~", "```"), encoding="utf-8")
    return page


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("~~~python\nprint(1)\n~~~\n\n~~~output\n2\n~~~\n", "prints\n1"),
        ("~~~python\nprint(1)\n~~~\n", "page shows"),
        ("~~~python\nx = 1\n~~~\n\n~~~output\n1\n~~~\n", "page shows\n1"),
        ("<!-- not run -->\n~~~python\nx = 1\n~~~\n", "what is 'not run'"),
        ("<!-- not run: -->\n~~~python\nx = 1\n~~~\n", "what is 'not run:'"),
        ("- a\n  ~~~python\n  x = 1\n  ~~~\n", "start of a line"),
        ("~~~python\ndef test_it():\n    print(1)\n~~~\n", "prints\n1"),
        ("<!-- file: test_it.py -->\n~~~python\ndef test_it():\n    assert False\n~~~\n", "1 failed"),
    ],
)
def test_a_page_that_says_something_else_fails(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PageError) as raised:
        run_page(page_with(tmp_path, text), with_spark=True)
    assert problem in str(raised.value)


def test_blocks_share_their_names_and_some_wait_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_with(
        tmp_path,
        "~~~python\nx = 1\n~~~\n<!-- not run: because -->\n~~~python\nx = 1 / 0\n~~~\ntext\n"
        "<!-- spark -->\n~~~python\nx = 2\n~~~\n~~~python\nassert x == 1\n~~~\n",
    )
    assert run_page(page, with_spark=False).x == 1
    with pytest.raises(AssertionError) as raised:
        run_page(page, with_spark=True)
    assert [block.not_run for block in blocks_of(page)] == [None, "because", None, None]
    assert raised.traceback[-1].lineno + 1 == 14, "tracebacks have the page's lines"


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = page_with(tmp_path, "# A `b`, c\n[x](#a-b-c) [x](page.md#a-b-c) [x](y.md) [x](#d) [x](https://x.y)\n")
    assert broken_links(page) == ["y.md", "#d"]


def test_files_that_are_not_there_are_found(tmp_path: Path) -> None:
    text = (
        "`tests/conftest.py`, tests/spark/test_nothing.py, [one](../statestore/none.py), my_tests/mine.py, tests/spark."
    )
    assert missing_files(page_with(tmp_path, text)) == ["statestore/none.py", "tests/spark/test_nothing.py"]
