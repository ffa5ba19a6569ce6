"""The command in a process of its own, and a browser that looks at it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import sync_playwright

_PATIENCE_S = 30.0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return once something is so; fails if it takes too long."""
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@contextmanager
def served(place: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command in a process of its own, and the address that it prints."""
    command = [sys.executable, "-m", "upgrade_tools", "serve", str(place), "--port", "0", "--poll-seconds", "0.05"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, without a window; skips where it is not installed."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed: make chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab that notes what goes wrong in it."""

    def __init__(self, browser: Any, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> None:
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))

    def _note(self, said: Any) -> None:
        # Answers that are no answers are shown in the page, and are in the console anyway.
        if said.type == "error" and not said.text.startswith("Failed to load resource"):
            self.problems.append(said.text)

    def show(self, address: str) -> None:
        """Go to a view, and wait until it is shown."""
        self.page.goto(address)
        self.until_shown()

    def until_shown(self) -> None:
        """Wait until the view of the address is shown."""
        self.until("document.querySelector('main').dataset.shown === location.hash")

    def until(self, expression: str) -> None:
        """Wait until an expression is true; playwright's own way needs `eval`, which the policy refuses."""
        wait_until(lambda: bool(self.page.evaluate(expression)))

    @property
    def heading(self) -> str:
        return str(self.page.inner_text("main h1"))

    @property
    def text(self) -> str:
        return str(self.page.inner_text("main"))

    def rows(self) -> list[str]:
        """The text of each row of the first table."""
        return [str(row) for row in self.page.locator("main table").first.locator("tbody tr").all_inner_texts()]
