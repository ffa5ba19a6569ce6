"""`python -m tests.matrix`: demos, tests, and one checkpoint that goes through all versions of Spark.

It makes an environment for each Spark, runs the parts in it, one after the other, and writes the table of
docs/compatibility.md. With `--only`, that is some of it, and the rest stays: columns, the ways of the checkpoint, a
client of Spark Connect alone, what is said with a Spark that is too old. With `--few`, it runs a small part, with the
lowest and the highest Spark at the same time, and `.ci/try-wheel`, and writes no table: what CI has time for.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tests.matrix.environments import CLIENT, ENVIRONMENTS, ROOT, TOO_OLD, VERSIONS, Environment, InstallError
from tests.matrix.page import FAILED, NOT_RUN, SPARK, Findings
from tests.matrix.parts import CLIENT_ALONE, DEMOS, PARTS, Part
from tests.matrix.results import in_words, results_of

T = TypeVar("T")
Found = tuple[Findings, bool]
"""What a step has found, and whether all of it is right."""

_PAGE: Final = ROOT / "docs" / "compatibility.md"
_TAIL_LINES: Final = 60
_CHECKPOINT: Final = "checkpoint"
_CLIENT: Final = "client"
_LOWEST_AND_HIGHEST: Final = (ENVIRONMENTS[0], ENVIRONMENTS[-1])
_UP: Final = tuple(each for each in ENVIRONMENTS if each in _LOWEST_AND_HIGHEST or each.is_own)
_UP_AND_DOWN: Final = (*ENVIRONMENTS, *reversed(ENVIRONMENTS[:-1]))
_SECOND_FORMAT: Final = (*ENVIRONMENTS[1:], ENVIRONMENTS[1])
"""Spark 4.0 can't read back the second format of checkpoints."""
_AT_ONCE: Final = 2
"""CI has two cores. Spark waits 10 s for a new process of Python: more at the same time make that fail."""


def main() -> int:
    """Run what is asked for; return 0 if all of it is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--few", action="store_true", help="a small part, with the lowest and the highest Spark only")
    choices = (*(environment.release for environment in (*ENVIRONMENTS, TOO_OLD)), _CLIENT, _CHECKPOINT)
    parser.add_argument("--only", nargs="+", choices=choices, default=choices, help="some of it; the rest stays")
    parser.add_argument("--missing", action="store_true", help="of tables, only the cells that the page lacks")
    asked = parser.parse_args()
    try:
        found = _few() if asked.few else _all(asked.only, missing=asked.missing)
    except InstallError as cause:
        print(cause, flush=True)
        return 1
    is_well = all(is_well for _, is_well in found)
    print("the matrix is right" if is_well else "the matrix is WRONG: see above", flush=True)
    return 0 if is_well else 1


def _few() -> Sequence[Found]:
    """Run a small part and try the wheel, with two Sparks at the same time."""
    _install(_UP)
    parts = [part for part in PARTS if part.few]
    columns = [partial(_column, each, {}, parts, few=True) for each in _LOWEST_AND_HIGHEST]
    return _at_once([*columns, partial(_go_through, _UP), _wheel])


def _all(asked: Sequence[str], *, missing: bool) -> Sequence[Found]:
    """Run what is asked for, or what the page lacks of it, one after the other, and put it into the page."""
    findings = Findings.of_page(_PAGE)
    chosen = [each for each in ENVIRONMENTS if each.release in asked]
    others = {CLIENT: _client, TOO_OLD: _refusal}
    beside = [each for each in others if (_CLIENT if each is CLIENT else each.release) in asked]
    _install(dict.fromkeys((*chosen, *beside, *(ENVIRONMENTS if _CHECKPOINT in asked else ()))))
    found = []
    for each in chosen:
        demos = {about: demo for about, demo in DEMOS.items() if not (missing and findings.has(each.spark, about))}
        parts = [part for part in PARTS if not (missing and findings.has(each.spark, part.about))]
        found.append(_column(each, demos, parts, few=False))
    found += [others[each](each) for each in beside]
    if _CHECKPOINT in asked:
        found += [_go_through(_UP_AND_DOWN), _go_through(_SECOND_FORMAT, "--second-format")]
    findings = Findings.of_page(_PAGE)  # which another run may have written to meanwhile
    for later, _ in found:
        findings = findings.updated(later, [each.spark for each in ENVIRONMENTS])
    findings.of_rows([*VERSIONS, *DEMOS, *(part.about for part in PARTS)]).write(_PAGE)
    return found


def _install(environments: Iterable[Environment]) -> None:
    _at_once([partial(_timed, f"Spark {each.spark}: its environment", each.install) for each in environments])


def _at_once(steps: Sequence[Callable[[], T]]) -> list[T]:
    """Return what steps return, of which some run at the same time. Raises what the first one raises."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [each.result() for each in [pool.submit(step) for step in steps]]


def _column(environment: Environment, demos: Mapping[str, str], parts: Sequence[Part], *, few: bool) -> Found:
    """Return what the table says of an environment, and whether all of it is right."""
    column = {SPARK: environment.spark, **environment.versions()}
    for about, program in demos.items():
        done = _timed(f"Spark {environment.spark}: {about}", partial(environment.run, program))
        column[about] = "right" if done.returncode == 0 else FAILED
        if done.returncode:
            _print_end(done.stdout + done.stderr)
    is_well = True
    if parts:
        found, is_well = _tests(environment, parts, few=few)
        column |= found
    print("\n".join(f"   Spark {environment.spark}, {about}: {said}" for about, said in column.items()), flush=True)
    return Findings([column], {}), is_well and not any(FAILED in said or said == NOT_RUN for said in column.values())


def _tests(
    environment: Environment, parts: Sequence[Part], *, few: bool = False, **variables: str
) -> tuple[Mapping[str, str], bool]:
    """Return what tests of some parts came to, and whether pytest says that all is right."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        nodes = [node for part in parts for node in part.nodes(few=few)]
        warnings = [f"-W{warning}" for warning in environment.warnings]
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *warnings, *nodes]
        done = _timed(f"Spark {environment.spark}: tests", partial(environment.run, *arguments, **variables))
        if done.returncode:
            _print_end(done.stdout)
        found = {about: in_words(counted) for about, counted in results_of(report, parts).items()}
        return found, done.returncode == 0


def _client(environment: Environment) -> Found:
    """Run the tests of Spark Connect with the Spark of the lock, and a client in an environment that has no JVM."""
    own = next(each for each in ENVIRONMENTS if each.is_own)
    found, is_well = _tests(own, [CLIENT_ALONE], CONNECT_CLIENT_PYTHON=str(environment.interpreter))
    said = found[CLIENT_ALONE.about]
    print(f"   {CLIENT_ALONE.about}: {said}", flush=True)
    return Findings([], {f"{CLIENT_ALONE.about}, {environment.spark}": said}), is_well and FAILED not in said


def _refusal(environment: Environment) -> Found:
    """Have an environment import what is refused there; return its sentence, which is the last that it says."""
    step = partial(environment.run, "-c", "import statestore.spark")
    done = _timed(f"Spark {environment.spark}: refused", step)
    error, _, sentence = (done.stderr.splitlines() or [""])[-1].rpartition("Error: ")
    is_well = error.endswith(".SparkVersion") and f"pyspark {environment.spark} is installed" in sentence
    said = f"`SparkVersionError`: {sentence}" if is_well else FAILED
    if not is_well:
        _print_end(done.stdout + done.stderr)
    print(f"   Spark {environment.spark}: {said}", flush=True)
    return Findings([], {f"Spark {environment.spark} is refused": said}), is_well


def _go_through(way: Sequence[Environment], *options: str) -> Found:
    """Have each Spark go on from where the one before stopped; return how far they came, and whether all did."""
    home = Path(tempfile.mkdtemp(prefix="statestore-matrix-"))
    about = f"One checkpoint, in format {2 if options else 1}"
    came: list[str] = []
    for leg, environment in enumerate(way):
        for local in home.glob("*/local"):  # another Spark goes on on another machine
            shutil.rmtree(local)
        arguments = ("-m", "tests.matrix.one_checkpoint", str(home), str(leg), *options)
        done = _timed(f"One checkpoint: Spark {environment.spark} goes on", partial(environment.run, *arguments))
        came.append(environment.spark if done.returncode == 0 else f"{environment.spark} {FAILED}")
        if done.returncode:
            _print_end(done.stdout + done.stderr)
            break
    shutil.rmtree(home)
    said = " -> ".join(came)
    print(f"   {about}: {said}", flush=True)
    return Findings([], {about: said}), done.returncode == 0


def _wheel() -> Found:
    """Have the package installed into an empty environment, and used there; return whether that works."""
    step = partial(subprocess.run, [str(ROOT / ".ci" / "try-wheel")], check=False)
    return Findings([], {}), _timed("The package in an empty environment", step).returncode == 0


def _timed(what: str, act: Callable[[], T]) -> T:
    started = time.monotonic()
    print(f"== {what} ...", flush=True)
    found = act()
    print(f"   {what}: {time.monotonic() - started:.0f} s", flush=True)
    return found


def _print_end(said: str) -> None:
    print("\n".join(said.splitlines()[-_TAIL_LINES:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
