"""Migrations in processes that kill themselves, with SIGKILL, at a file operation that the test chooses.

Run as a program it takes requests from its standard input, a line of JSON each, and answers with one: each migration
runs in a fork of a process that has everything imported, and no database open. `Killer` starts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")


class Killer:
    """Runs migrations that are killed. A context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, within: Path, kill_at: int | None = None, **request: Any) -> int | None:
        """Run a migration; kill it before the file operation number `kill_at` of those on something below `within`.

        Return None if it was killed, else how many operations there were. `request` is that of MigrationRequest, as
        JSON; `said` is what is said of all stores, and `kinds` has the kind of each that must be said.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"within": str(within), "kill_at": kill_at, "request": request}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "failed" in answer:
            raise AssertionError(f"the migration ended with status {answer['failed']}, see stderr")
        operations: int | None = answer["operations"]
        return operations


def _migrate(within: str, kill_at: int | None, fields: dict[str, Any]) -> int:
    """Migrate, and return how many file operations there were, in a process that may not live to the end."""
    from statestore.bytestore.engines.table_files import SortedFill
    from statestore.bytestore.kinds.store_spec import StoreType
    from upgrade_tools.migration.migrate import migrate
    from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
    from upgrade_tools.states.state import StateOptions

    SortedFill.table_bytes = 1  # a table for each step, so that many are there before the last
    operations = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal operations
        if event in _OPERATIONS and str(arguments[0]).startswith(within):
            operations += 1
            if operations == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    to, layout = fields.pop("to", None), fields.pop("layout", None)
    options, kinds = StateOptions(**fields.pop("store_options")), fields.pop("kinds", {})
    request = MigrationRequest(
        **fields,
        to=None if to is None else TargetFormat(to),
        layout=None if layout is None else TargetLayout(layout),
        store_options={None: options, **{name: replace(options, kind=StoreType(kind)) for name, kind in kinds.items()}},
    )
    sys.addaudithook(count)
    migrate(request)
    return operations


def _serve() -> None:
    import upgrade_tools.migration  # noqa: F401  imported once for all forks

    for line in sys.stdin:
        asked = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            operations = _migrate(asked["within"], asked["kill_at"], asked["request"])
            os.write(writing, str(operations).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            told = said.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            answer: dict[str, int | None] = {"operations": None}
        elif status == 0:
            answer = {"operations": int(told)}
        else:
            answer = {"failed": status}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
