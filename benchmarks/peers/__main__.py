"""`make bench-peers`: runs the peers in turn, some rounds, and writes down what they took.

With --steady it runs longer, without slow peers and with the DSLs, and the second half counts. Figures go to
benchmarks/results, tables and plot to build/peers. A run of all peers over all records without a failure writes its
part of docs/peers.md, and without --steady docs/peers.svg.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, Final, NoReturn

from benchmarks.peers.catalogue import BUILD, DSL_PEERS, PEERS
from benchmarks.peers.environment import environment_python
from benchmarks.peers.failure import PeerError
from benchmarks.peers.figures import PeerFigures, peer_figures, write_figures
from benchmarks.peers.page import Setting, tables, write_page
from benchmarks.peers.plans import FIRST, STEADY, Plan
from benchmarks.peers.rounds import Outcome, measure
from benchmarks.peers.run import ROOT
from statestore.errors import StateStoreError
from statestore.testing.jars import KAFKA_VERSION

RESULTS: Final = ROOT / "benchmarks" / "results"
DOCS: Final = ROOT / "docs"
INTERRUPTED: Final = 130


def show(setting: Setting, done: Outcome, is_whole: bool) -> None:
    """Write figures, tables and plot."""
    plan = setting.plan
    found: list[PeerFigures] = [
        peer_figures(peer.name, peer.records(plan.records), runs)
        for peer in plan.peers
        if (runs := done.runs[peer.name])
    ]
    results = RESULTS / f"{plan.name}.json"
    write_figures(results, found)
    text = tables(setting, found, done.failures)
    print(f"\n{text}\nfigures: {results}", flush=True)
    page, svg = (
        (DOCS / "peers.md", DOCS / "peers.svg") if is_whole else (BUILD / f"{plan.name}.md", BUILD / "peers.svg")
    )
    if is_whole:
        write_page(page, text, plan.command)
    else:
        page.write_text(text, encoding="utf-8")
    print(f"tables: {page}{'' if is_whole else '; docs are left: this is not a whole run'}")
    if found and plan.name == FIRST.name:
        _draw(results, svg)
        print(f"plot: {svg}")


def _draw(results: Path, svg: Path) -> None:
    """Draw the plot. Raises PeerError if that fails; figures and tables are written by then."""
    python = environment_python(BUILD / "environment")
    command = [str(python), str(Path(__file__).with_name("plot.py")), str(results), str(svg)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise PeerError("the plot can't be drawn", output=done.stdout)


def _setting(plan: Plan, load_before: float, done: Outcome) -> Setting:
    quix = next((BUILD / "environment").glob("lib/python*/site-packages/quixstreams-*.dist-info"), None)
    versions = {
        "Kafka": KAFKA_VERSION,
        "PySpark": importlib.metadata.version("pyspark"),
        "Python": ".".join(map(str, sys.version_info[:3])),
    }
    if any(peer.name == "quix" for peer in plan.peers):
        versions["Quix Streams"] = quix.stem.rpartition("-")[2] if quix else "not installed"
    day = datetime.now(timezone.utc).date().isoformat()
    return Setting(day, os.cpu_count() or 1, load_before, done.load_most, versions, done.broker_looking_cores, plan)


def _asked(arguments: Sequence[str] | None) -> Plan:
    parser = argparse.ArgumentParser(
        prog="make bench-peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steady", action="store_true", help=f"{STEADY.records} records, of which the second half counts"
    )
    parser.add_argument("--rounds", type=int, help=f"default {FIRST.rounds}, with --steady {STEADY.rounds}")
    parser.add_argument("--records", type=int, help=f"default {FIRST.records}; slow peers have fewer")
    known = {peer.name: peer for peer in (*PEERS.values(), *chain(*DSL_PEERS.values()))}
    parser.add_argument(
        "--peers", type=lambda names: names.split(","), help=f"with commas between, of {', '.join(known)}"
    )
    asked = parser.parse_args(arguments)
    plan = STEADY if asked.steady else FIRST
    for name in asked.peers or ():
        if name not in known:
            parser.error(f"no peer {name!r}: there are {', '.join(known)}")
    given: dict[str, Any] = {
        "rounds": asked.rounds,
        "records": asked.records,
        "peers": tuple(known[name] for name in asked.peers) if asked.peers else None,
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    if plan.rounds < 1 or plan.records < plan.batches:
        parser.error(f"at least 1 round and {plan.batches} records")
    return plan


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every peer has run, 1 if one has failed."""
    plan = _asked(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        load_before = os.getloadavg()[0]
        done = measure(plan)
        whole = FIRST if plan.name == FIRST.name else STEADY
        is_whole = plan == replace(whole, rounds=plan.rounds) and not done.failures
        show(_setting(plan, load_before, done), done, is_whole)
    except KeyboardInterrupt:
        print("stopped: nothing is written, and no process left", file=sys.stderr)
        return INTERRUPTED
    except StateStoreError as failure:
        print(failure, file=sys.stderr)
        return 1
    for name, reason in done.failures.items():
        print(f"FAILED: {name}: {reason}", file=sys.stderr)
    return 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
