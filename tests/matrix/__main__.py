"""`python -m tests.matrix`: demos, tests, and one checkpoint that goes through all versions of Spark.

It makes an environment for each Spark, runs the parts in it, one after the other, and writes the table of
docs/compatibility.md; with `--only`, the columns of some, or the ways of the checkpoint, and the others stay. With
`--few`, it runs a small part, with the lowest and the highest Spark only, and writes no table: what CI has time for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tests.matrix.environments import CLIENT, ENVIRONMENTS, ROOT, Environment
from tests.matrix.page import SPARK, Findings
from tests.matrix.parts import CLIENT_ALONE, DEMOS, PARTS, Part
from tests.matrix.results import in_words, is_right, results_of

T = TypeVar("T")
_PAGE: Final = ROOT / "docs" / "compatibility.md"
_TAIL_LINES: Final = 60
_CHECKPOINT: Final = "checkpoint"
_UP: Final = tuple(each for each in ENVIRONMENTS if each in (ENVIRONMENTS[0], ENVIRONMENTS[-1]) or each.is_own)
_UP_AND_DOWN: Final = (*ENVIRONMENTS, *reversed(ENVIRONMENTS[:-1]))
_SECOND_FORMAT: Final = (*ENVIRONMENTS[1:], ENVIRONMENTS[1])
"""Spark 4.0 can't read back the second format of checkpoints."""


def main() -> int:
    """Run what is asked for; return 0 if all of it is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--few", action="store_true", help="a small part, with the lowest and the highest Spark only")
    choices = (*(environment.release for environment in ENVIRONMENTS), _CHECKPOINT)
    parser.add_argument("--only", nargs="+", choices=choices, default=choices, help="some of it; the rest stays")
    asked = parser.parse_args()
    chosen = [each for each in ENVIRONMENTS if each.release in asked.only]
    if asked.few:
        chosen = [ENVIRONMENTS[0], ENVIRONMENTS[-1]]
    for environment in ENVIRONMENTS if _CHECKPOINT in asked.only and not asked.few else chosen:
        _timed(f"Spark {environment.spark}: its environment", environment.install)
    found = [_column(environment, few=asked.few) for environment in chosen]
    ways = []
    if _CHECKPOINT in asked.only:
        ways.append(_go_through(_UP if asked.few else _UP_AND_DOWN))
        if not asked.few:
            ways.append(_go_through(_SECOND_FORMAT, "--second-format"))
    if not asked.few:
        versions = [environment.spark for environment in ENVIRONMENTS]
        columns, said = [column for column, _ in found], [way for way, _ in ways]
        Findings.of_page(_PAGE).updated(columns, said, versions).write(_PAGE)
    return 0 if all(is_well for _, is_well in (*found, *ways)) else 1


def _column(environment: Environment, *, few: bool) -> tuple[dict[str, str], bool]:
    """Return what the table says of an environment, and whether all of it is right."""
    column = {SPARK: environment.spark, **environment.versions()}
    is_well = True
    for about, program in {} if few else DEMOS.items():
        done = _timed(f"Spark {environment.spark}: {about}", partial(environment.run, program))
        column[about] = "right" if done.returncode == 0 else "FAILED"
        if done.returncode:
            is_well = False
            _print_end(done.stdout + done.stderr)
    said, are_right = _tested(environment, [part for part in PARTS if part.nodes(few=few)], few=few)
    if environment.is_own and not few:
        _timed("A client of Spark Connect alone: its environment", CLIENT.install)
        of_client, is_right_too = _tested(environment, [CLIENT_ALONE], CONNECT_CLIENT_PYTHON=str(CLIENT.interpreter))
        said, are_right = said | of_client, are_right and is_right_too
    return column | said, is_well and are_right


def _tested(
    environment: Environment, parts: Sequence[Part], *, few: bool = False, **variables: str
) -> tuple[dict[str, str], bool]:
    """Run the tests of parts; return what the table says of each, and whether all are right."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        nodes = [node for part in parts for node in part.nodes(few=few)]
        warnings = [f"-W{warning}" for warning in environment.warnings]
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *warnings, *nodes]
        done = _timed(f"Spark {environment.spark}: tests", partial(environment.run, *arguments, **variables))
        found = results_of(report, parts)
    for about, counted in found.items():
        print(f"   {about}: {in_words(counted)}", flush=True)
    is_well = done.returncode == 0 and all(map(is_right, found.values()))
    if not is_well:
        _print_end(done.stdout)
    return {about: in_words(counted) for about, counted in found.items()}, is_well


def _go_through(way: Sequence[Environment], *options: str) -> tuple[str, bool]:
    """Have each Spark go on from where the one before stopped; return how far they came, and whether all did."""
    home = Path(tempfile.mkdtemp(prefix="statestore-matrix-"))
    said = "checkpoint format 2: " if options else ""
    is_well = True
    for leg, environment in enumerate(way):
        arguments = ("-m", "tests.matrix.one_checkpoint", str(home), str(leg), *options)
        done = _timed(f"One checkpoint: Spark {environment.spark} goes on", partial(environment.run, *arguments))
        said += f"{' -> ' if leg else ''}{environment.spark}"
        if done.returncode:
            _print_end(done.stdout + done.stderr)
            said += " FAILED"
            is_well = False
            break
    shutil.rmtree(home)
    print(f"   {said}", flush=True)
    return said, is_well


def _timed(what: str, act: Callable[[], T]) -> T:
    started = time.monotonic()
    print(f"== {what} ...", flush=True)
    found = act()
    print(f"   {time.monotonic() - started:.0f} s", flush=True)
    return found


def _print_end(said: str) -> None:
    print("\n".join(said.splitlines()[-_TAIL_LINES:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
