"""Runs the Python code of a documentation page from top to bottom, and compares what it prints with what is shown.

A page's ```python blocks run in order and share their names; functions test_... that a block defines are called. What a
block prints stands in the next block, which is ```output, or ```mermaid where it is a drawing. A comment in the line
before a block says what else is done with it:

    <!-- not run: REASON -->     it is not run
    <!-- spark -->               it runs with Spark only, and so where it is asked for
    <!-- file: NAME -->          it is the content of a file, which is written, and which blocks behind it may import;
                                 a test_NAME is run by pytest instead
"""

from __future__ import annotations

import importlib
import inspect
import io
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))

_BLOCK: Final = re.compile(r"(?:^<!-- (?P<marker>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_SHOWN: Final = ("output", "mermaid")


class PageError(AssertionError):
    """A page whose code does not do what the page says."""


@dataclass(frozen=True)
class Block:
    """A block of code, or of what one prints."""

    language: str
    text: str
    line: int
    """The first line of the text, counted from 1."""
    marker: str

    @property
    def not_run(self) -> str | None:
        """Why the block is not run; None if it is."""
        return self.marker.removeprefix("not run: ") if self.marker.startswith("not run: ") else None

    @property
    def needs_spark(self) -> bool:
        return self.marker == "spark"

    @property
    def file(self) -> str | None:
        return self.marker.removeprefix("file: ") if self.marker.startswith("file: ") else None


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page: Python, and what it prints.

    Raises PageError for a comment that means nothing, and for Python that is fenced in some other way.
    """
    text = page.read_text(encoding="utf-8")
    blocks = []
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        block = Block(found["language"], found["text"], line, found["marker"] or "")
        if block.language not in ("python", *_SHOWN):
            continue
        if block.marker and not (block.needs_spark or block.file or block.not_run):
            raise PageError(f"{page}:{line - 2}: what is {block.marker!r}?")
        blocks.append(block)
    if sum(block.language == "python" for block in blocks) != len(re.findall("^ *(?:```|~~~) *py", text, re.M)):
        raise PageError(f"{page}: there is Python that does not begin with ```python at the start of a line")
    return blocks


def python_of(page: Path) -> list[Block]:
    """Return the Python blocks of a page."""
    return [block for block in blocks_of(page) if block.language == "python"]


def needs_spark(page: Path) -> bool:
    """Return whether some of the page's code runs with Spark only."""
    return any(block.needs_spark for block in blocks_of(page))


def run_page(page: Path, *, with_spark: bool, fixtures: Mapping[str, Any] | None = None) -> ModuleType:
    """Run a page's code in the current directory, and return what it defined.

    `fixtures` are what test functions on the page are called with, by the names of their parameters.
    Raises PageError where output differs, is not shown, or is shown of a block that prints nothing, and what the code
    itself raises.
    """
    # Not in sys.modules: so Spark sends the page's classes to its workers as they are, where it can't import them.
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    blocks = blocks_of(page)
    with _files_imported(blocks, with_spark=with_spark):
        for number, block in enumerate(blocks):
            if block.language != "python" or block.not_run or (block.needs_spark and not with_spark):
                continue
            printed = _run(page, block, module, fixtures or {})
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            shown = following.text if following is not None and following.language in _SHOWN else ""
            if printed != shown:
                raise PageError(f"{page}:{block.line}: prints\n{printed}\nand the page shows\n{shown}")
    return module


@contextmanager
def _files_imported(blocks: Sequence[Block], *, with_spark: bool) -> Iterator[None]:
    """Write the files that blocks may import, and let them. Spark's workers, started elsewhere, get them whole."""
    names = [block.file.removesuffix(".py") for block in blocks if block.file and not block.file.startswith("test_")]
    if not names:
        yield
        return
    for block in blocks:
        if block.file and block.file.removesuffix(".py") in names:
            Path(block.file).write_text(block.text, encoding="utf-8")
    sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    try:
        if with_spark:
            from pyspark import cloudpickle

            for name in names:
                cloudpickle.register_pickle_by_value(importlib.import_module(name))
        yield
    finally:
        sys.path.pop(0)
        for name in names:
            if with_spark:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])
            sys.modules.pop(name, None)


def _run(page: Path, block: Block, module: ModuleType, fixtures: Mapping[str, Any]) -> str:
    if block.file is not None and block.file.startswith("test_"):
        Path(block.file).write_text(block.text, encoding="utf-8")
        _run_pytest(page, block)
        return ""
    printed = io.StringIO()
    # Below as many empty lines as stand above it on the page: tracebacks have the page's line numbers.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
    before = dict(module.__dict__)
    with redirect_stdout(printed):
        exec(code, module.__dict__)
        for name, test in list(module.__dict__.items()):
            if name.startswith("test_") and before.get(name) is not test:
                test(**{parameter: fixtures[parameter] for parameter in inspect.signature(test).parameters})
    return printed.getvalue()


def _run_pytest(page: Path, block: Block) -> None:
    assert block.file is not None
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", block.file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PageError(f"{page}:{block.line}: {block.file} fails\n{done.stdout}{done.stderr}")


_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCED: Final = re.compile(r"^```.*?^```$", re.M | re.S)
_HEADING: Final = re.compile(r"^#+ (.*)$", re.M)


def broken_links(page: Path) -> list[str]:
    """Return the links of a page to files, and headings of pages, that are not there."""
    targets = _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return [target for target in targets if "://" not in target and not _is_there(page, target)]


_FILE: Final = re.compile(r"(?<![\w/.-])(?:\.\./)*((?:benchmarks|statestore|tests|upgrade_tools)/[\w./-]*\w)")


def missing_files(page: Path) -> list[str]:
    """Return what a page names of this repository that is not there."""
    return sorted({name for name in _FILE.findall(page.read_text(encoding="utf-8")) if not (ROOT / name).exists()})


def _is_there(page: Path, target: str) -> bool:
    name, _, heading = target.partition("#")
    linked = (page.parent / name).resolve() if name else page
    if not linked.exists() or not heading:
        return linked.exists() and not heading
    return heading in {_anchor(text) for text in _HEADING.findall(_FENCED.sub("", linked.read_text(encoding="utf-8")))}


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _write_program(page: str, directory: str, program: str, output: str) -> None:
    blocks = [block for block in blocks_of(ROOT / page) if not block.not_run]
    files = {Path(directory, block.file): block.text for block in blocks if block.file}
    for path, languages in ((Path(directory, program), ("python",)), (Path(output), _SHOWN)):
        files[path] = "".join(block.text for block in blocks if block.language in languages and not block.file)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if (
    __name__ == "__main__"
):  # PAGE DIRECTORY PROGRAM OUTPUT: write a page's files, the rest as a program, and what that prints
    _write_program(*sys.argv[1:])
