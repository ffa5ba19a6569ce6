"""`make bench-peers`: runs the peers in turn, some rounds, and writes down what they took.

Figures go to benchmarks/results/peers.json, tables and plot to build/peers. A run of all peers over all records without
a failure also writes docs/peers.md and docs/peers.svg.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, NoReturn

from benchmarks.peers.catalogue import BUILD, PEERS
from benchmarks.peers.environment import environment_python
from benchmarks.peers.failure import PeerError
from benchmarks.peers.figures import PeerFigures, peer_figures, write_figures
from benchmarks.peers.page import Setting, tables, write_page
from benchmarks.peers.rounds import BATCHES, Outcome, measure
from benchmarks.peers.run import ROOT
from statestore.errors import StateStoreError
from statestore.testing.jars import KAFKA_VERSION

RECORDS: Final = 1_000_000
ROUNDS: Final = 5
RESULTS: Final = ROOT / "benchmarks" / "results" / "peers.json"
DOCS: Final = ROOT / "docs"
INTERRUPTED: Final = 130


def show(setting: Setting, done: Outcome, is_whole: bool) -> None:
    """Write figures, tables and plot."""
    found: list[PeerFigures] = [
        peer_figures(name, PEERS[name].records(setting.records), runs) for name, runs in done.runs.items() if runs
    ]
    write_figures(RESULTS, found)
    text = tables(setting, found, done.failures)
    print(f"\n{text}\nfigures: {RESULTS}", flush=True)
    (BUILD / "peers.md").write_text(text, encoding="utf-8")
    if is_whole:
        write_page(DOCS / "peers.md", text)
    if found:
        _draw(DOCS / "peers.svg" if is_whole else BUILD / "peers.svg")
    if is_whole:
        print(f"tables and plot: {DOCS / 'peers.md'}, {DOCS / 'peers.svg'}")
    else:
        print(f"tables and plot: {BUILD / 'peers.md'}, {BUILD / 'peers.svg'}; docs are left: this is not a whole run")


def _draw(svg: Path) -> None:
    """Draw the plot. Raises PeerError if that fails; figures and tables are written by then."""
    python = environment_python(BUILD / "environment")
    command = [str(python), str(Path(__file__).with_name("plot.py")), str(RESULTS), str(svg)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise PeerError("the plot can't be drawn", output=done.stdout)


def _setting(records: int, rounds: int, load_before: float, load_most: float) -> Setting:
    quix = next((BUILD / "environment").glob("lib/python*/site-packages/quixstreams-*.dist-info"), None)
    versions = {
        "Kafka": KAFKA_VERSION,
        "PySpark": importlib.metadata.version("pyspark"),
        "Quix Streams": quix.stem.rpartition("-")[2] if quix else "not installed",
        "Python": ".".join(map(str, sys.version_info[:3])),
    }
    day = datetime.now(timezone.utc).date().isoformat()
    return Setting(day, os.cpu_count() or 1, load_before, load_most, versions, records, rounds)


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench-peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"default {RECORDS}; slow peers have fewer")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, with commas between; default: all of them")
    asked = parser.parse_args(arguments)
    asked.peers = asked.peers.split(",")
    for name in asked.peers:
        if name not in PEERS:
            parser.error(f"no peer {name!r}: there are {', '.join(PEERS)}")
    if asked.rounds < 1 or asked.records < BATCHES:
        parser.error(f"at least 1 round and {BATCHES} records")
    return asked


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every peer has run, 1 if one has failed."""
    asked = _asked(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        load_before = os.getloadavg()[0]
        done = measure([PEERS[name] for name in asked.peers], asked.records, asked.rounds)
        is_whole = asked.peers == list(PEERS) and asked.records == RECORDS and not done.failures
        show(_setting(asked.records, asked.rounds, load_before, done.load_most), done, is_whole)
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
