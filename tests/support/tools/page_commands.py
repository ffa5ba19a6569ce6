"""Runs the commands that a documentation page shows, in this process, with words of the page replaced."""

from __future__ import annotations

import importlib
import io
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

_COMMAND = re.compile(r"^python -m (?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE)
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_MODULES = {"upgrade_tools": "upgrade_tools.cli.app", "statestore.spark": "statestore.spark.__main__"}


@dataclass
class PageCommands:
    """The commands of a page, each `python -m MODULE ARGUMENTS [> FILE]`; `run` takes them one after the other."""

    page: Path
    words: Mapping[str, str]
    """What stands for words of the page: a word is replaced where it is an argument or a file."""
    sections: Callable[[str], bool] = lambda heading: True
    """Says by its heading whether commands of a section are meant; what is above all headings is one without."""
    left: list[list[str]] = field(init=False)
    """Those that were not run yet."""

    def __post_init__(self) -> None:
        parts = ["", *_HEADING.split(self.page.read_text(encoding="utf-8"))]
        text = "".join(text for heading, text in zip(parts[::2], parts[1::2], strict=True) if self.sections(heading))
        self.left = [shlex.split(found["rest"].replace("\\\n", " ")) for found in _COMMAND.finditer(text)]

    def run(self, *beginning: str) -> str:
        """Run the first command that is left, which begins with these words; return what it prints.

        Raises AssertionError if it is another one, or if it fails.
        """
        words = self.left.pop(0)
        assert tuple(words[: len(beginning)]) == beginning, f"the next command of the page is {words}"
        replaced = [self.words.get(word, word) for word in words]
        file = replaced[replaced.index(">") + 1] if ">" in replaced else None
        module, *arguments = replaced[: replaced.index(">")] if file else replaced
        printed = io.StringIO()
        with redirect_stdout(printed):
            status = importlib.import_module(_MODULES[module]).main(arguments)
        assert status == 0, f"{words} ends with {status}"
        if file is not None:
            Path(file).write_text(printed.getvalue(), encoding="utf-8")
        return printed.getvalue()
