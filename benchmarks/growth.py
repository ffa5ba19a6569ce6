"""How the time a record grows: with keys in the store, headers of a record, shards, batches behind it, and executors.

    python benchmarks/growth.py                          all parts
    python benchmarks/growth.py keys batches             some
    python benchmarks/growth.py --small                  sizes for a look: what is slow is left out
    python benchmarks/growth.py --write                  and write ratios and plot into docs, from all that was measured

Each part measures all its sizes in turn, several rounds, in one process, so that a slow minute strikes all of them.
Times are CPU time of all threads, compaction and uploads among them. Of each size there is the least, which other work
on the machine adds least to, and the mean, in which what comes now and then has its part. Figures go to
benchmarks/results/growth.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.environment import environment_python
from benchmarks.peers.page import write_page
from growth_executors import executor_growth
from in_process import RecordRounds
from scale import wait_for_uploads
from statestore import Processor, RecoveryOptions
from workload import CountAndKeep, CountAndKeepColumns, keyed_records

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
BUILD = ROOT / "build" / "peers"
"""Where `make bench-peers` has its environment, which has matplotlib."""
PARTS = ("keys", "headers", "shards", "batches", "executors")
OFF_THE_PAGE = re.compile(r"\bclock\b|_ms\b")
IN_THE_PLOT = re.compile(r"^old, |^young, |between neighbours")
"""What the summary leaves out beside that: a figure that it has says the same, or the plot."""
OF_A_KIND = re.compile(r"(?<! ): ")
"""Between what a ratio is of and the kind of ratio, as in `scalar, least: 64 : 2`."""
CPU = time.process_time
PATHS: Mapping[str, type[Processor]] = {"scalar": CountAndKeep, "columns": CountAndKeepColumns}
CALL = "shard call"
NO_SNAPSHOTS = RecoveryOptions(snapshot_every_deltas=1 << 20, snapshot_every_bytes=1 << 50, stop_after_deltas=0)
FILLED_AT_ONCE = 200_000
HEADER_VALUE_BYTES = 16
DEFAULT_HEADERS = 3
TEMPLATE_AGE = 200
"""Batches after which history leaves the retained versions: from then on each batch does the same work."""
RETAINED = 100


@dataclass
class Growth:
    """What one part found."""

    title: str
    x: str
    at: list[int]
    unit: str
    series: dict[str, list[float]] = field(default_factory=dict)
    """A figure for each of `at`."""
    ratios: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def rows_of(key_numbers: Sequence[int], first: int, headers: int = DEFAULT_HEADERS) -> pa.RecordBatch:
    """Return a record for each key, each with so many headers of the same size."""
    names = [f"header-{number:02}" for number in range(headers)]
    count = len(key_numbers) * headers
    return keyed_records(key_numbers, first, names, [b"%0*d" % (HEADER_VALUE_BYTES, number) for number in range(count)])


def samples_us(
    runs: Mapping[str, Callable[[int], Mapping[str, float]]], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Return what each run gave, by part, over rounds in which each has its turn; a run is told its round."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            gc.collect()
            for part, us in run(number).items():
                found[name].setdefault(part, []).append(us)
    return found


def measured(call: RecordRounds, rows: pa.RecordBatch) -> dict[str, float]:
    """Run one round; return its CPU microseconds a record by part, and the shard calls' by the clock."""
    parts = call.us(rows, CPU)
    parts["clock"] = sum(each.elapsed_ms for each in call.figures) / rows.num_rows * 1e3
    return parts


def add_series(growth: Growth, found: Mapping[str, Mapping[str, Sequence[float]]], part: str, prefix: str = "") -> None:
    """Add least and mean of a part, of runs named by path and size."""
    for path in PATHS:
        each = [found[f"{path} {at}"][part] for at in growth.at]
        growth.series[f"{prefix}{path}, least"] = [min(us) for us in each]
        growth.series[f"{prefix}{path}, mean"] = [statistics.fmean(us) for us in each]


def key_growth(home: Path, sizes: Sequence[int], batch: int, rounds: int) -> Growth:
    """One shard; each batch has `batch` different keys, drawn evenly, so that no size has more of them than another."""
    growth = Growth("keys in the store", "keys", list(sizes), "us of CPU a record")
    rng, runs = np.random.default_rng(1), {}
    for size in sizes:
        filled = RecordRounds(home / str(size), CountAndKeepColumns, 1, NO_SNAPSHOTS)
        started_s = time.perf_counter()
        for first in range(0, size, FILLED_AT_ONCE):
            filled.us(rows_of(range(first, min(size, first + FILLED_AT_ONCE)), first))
        print(f"   {size:,} keys in {time.perf_counter() - started_s:.0f} s", flush=True)

        def draw(size: int = size) -> pa.RecordBatch:
            return rows_of(rng.choice(size, batch, replace=False).tolist(), size)

        filled.us(draw())  # applies the last delta of the filling
        for path, processor in PATHS.items():
            call = filled.by(processor)
            runs[f"{path} {size}"] = lambda _, call=call, draw=draw: measured(call, draw())
    found = samples_us(runs, rounds)
    add_series(growth, found, CALL)
    add_series(growth, found, "clock", "clock, ")
    ratio_of_ends(growth)
    return growth


def header_growth(home: Path, counts: Sequence[int], batch: int, rounds: int) -> Growth:
    """One shard; every record has the same number of headers, which nobody looks at."""
    growth = Growth("headers of a record", "headers", list(counts), "us of CPU a record")
    keys, runs = list(range(batch)), {}
    for count in counts:
        rows = rows_of(keys, 0, count)
        call = RecordRounds(home / str(count), CountAndKeepColumns, 1, NO_SNAPSHOTS)
        call.us(rows)
        for path, processor in PATHS.items():
            of_path = call.by(processor)
            runs[f"{path} {count}"] = lambda _, call=of_path, rows=rows: measured(call, rows)
    found = samples_us(runs, rounds)
    for part in (CALL, "pack", "unpack"):
        add_series(growth, found, part, "" if part == CALL else f"{part}, ")
    for path in PATHS:
        times = growth.series[f"{path}, least"]
        # A straight line through all but the last: what it says of the last, and what was found.
        slope, base = np.polyfit(growth.at[:-1], times[:-1], 1)
        growth.ratios[f"{path}: most headers, found : straight line of the fewer"] = times[-1] / (
            base + slope * growth.at[-1]
        )
        growth.notes[f"{path}, us a header, between neighbours"] = [
            round(step, 4) for step in (np.diff(times) / np.diff(growth.at)).tolist()
        ]
    return growth


def shard_growth(home: Path, counts: Sequence[int], batch: int, keys: int, rounds: int) -> Growth:
    """The same keys and records in more and more shards, one after the other on one core."""
    growth = Growth(f"shards, {batch:,} records a batch in all", "shards", list(counts), "us of CPU a record")
    rng, runs = np.random.default_rng(1), {}
    for count in counts:
        call = RecordRounds(home / str(count), CountAndKeepColumns, count, NO_SNAPSHOTS)
        for first in range(0, keys, FILLED_AT_ONCE):
            call.us(rows_of(range(first, min(keys, first + FILLED_AT_ONCE)), first))
        for path, processor in PATHS.items():
            of_path = call.by(processor)
            runs[f"{path} {count}"] = lambda _, call=of_path: measured(
                call, rows_of(rng.choice(keys, batch, replace=False).tolist(), keys)
            )
    found = samples_us(runs, rounds)
    add_series(growth, found, CALL)
    add_series(growth, found, "clock", "clock, ")
    ratio_of_ends(growth)
    for path in PATHS:
        slope, _ = np.polyfit(growth.at, growth.series[f"{path}, least"], 1)
        growth.notes[f"{path}, ms of CPU a shard and batch"] = round(slope * batch / 1e3, 2)
    return growth


class AgingState:
    """A state that goes through all batches, and beside it one that is put back to its youth again and again.

    Both are measured in each batch, in turn, at the same phase between two snapshots. What the machine does to both
    is noise; what only the old one shows is growth.
    """

    def __init__(self, home: Path, keys: int, batch: int) -> None:
        self._home, self._keys, self._batch = home, keys, batch
        self._rng = np.random.default_rng(1)
        self.old = RecordRounds(home / "old", CountAndKeepColumns, 1, RecoveryOptions(retained_versions=RETAINED))
        self.old.us(rows_of(range(keys), 0))
        for _ in range(TEMPLATE_AGE - 1):
            self.old.us(self._rows())
        wait_for_uploads()
        self._template = self.old.copied_to(home / "template")
        self.young = self._template

    def _rows(self) -> pa.RecordBatch:
        return rows_of(self._rng.integers(0, self._keys, self._batch).tolist(), self._keys)

    def run(self, number: int) -> dict[str, dict[str, float]]:
        """Run a batch on both; return CPU and clock microseconds a record, and counts of what is there."""
        if number % RETAINED == 0:
            wait_for_uploads()
            if self.young is not self._template:
                shutil.rmtree(self.young.home)
            self.young = self._template.copied_to(self._home / f"young-{number}")
        rows = self._rows()
        ages = {"old": self.old, "young": self.young}
        # Who comes second may find caches warm.
        names = list(ages) if number % 2 else list(ages)[::-1]
        found = {}
        for name in names:
            found[name] = measured(ages[name], rows)
            (figures,) = ages[name].figures
            found[name].update((f"{part}, clock", ms / len(rows) * 1e3) for part, ms in figures.times._asdict().items())
        return found

    def counts(self) -> dict[str, int]:
        """Return what of the old state could grow."""
        return {
            "files in the location": sum(len(names) for _, _, names in os.walk(self.old.home / "state")),
            "files in the local copy": sum(len(names) for _, _, names in os.walk(self.old.home / "local")),
            "bytes of the commit pointer": len(self.old.pointers[0] or ""),
        }


def batch_growth(home: Path, batches: int, keys: int, batch: int) -> Growth:
    """Return how the last quarter of many batches compares with the first, beside a state that does not age."""
    aging = AgingState(home, keys, batch)
    found: list[dict[str, dict[str, float]]] = []
    counts: list[dict[str, int]] = []
    for number in range(batches):
        found.append(aging.run(number))
        if number % 7 == 0:  # meets every phase between two snapshots
            counts.append(aging.counts())
    quarter = batches // 4
    quarters = [found[start : start + quarter] for start in range(0, 4 * quarter, quarter)]
    title = f"batches behind it, {batch:,} records each over {keys:,} keys"
    growth = Growth(title, "quarter of the batches", [1, 2, 3, 4], "us a record, median")
    medians: dict[tuple[str, str], list[float]] = {
        (age, part): [statistics.median(each[age][part] for each in of_quarter) for of_quarter in quarters]
        for age in ("old", "young")
        for part in found[0][age]
    }
    for part in (CALL, "clock"):
        label = "CPU" if part == CALL else "clock"
        for age in ("old", "young"):
            growth.series[f"{age}, {label}"] = medians[age, part]
            growth.ratios[f"{age}, {label}: last quarter : first"] = medians[age, part][3] / medians[age, part][0]
        paired = [
            statistics.median(each["old"][part] / each["young"][part] for each in of_quarter) for of_quarter in quarters
        ]
        growth.series[f"old : young, {label}"] = paired
        growth.ratios[f"old : young, {label}: last quarter : first"] = paired[3] / paired[0]
    for part in (name for name in found[0]["old"] if name.endswith(", clock")):
        growth.series[f"old, {part}"] = medians["old", part]
    of_counts = len(counts) // 4
    growth.notes["first and last quarter, most"] = {
        name: [max(each[name] for each in part) for part in (counts[:of_counts], counts[-of_counts:])]
        for name in counts[0]
    }
    return growth


def ratio_of_ends(growth: Growth) -> None:
    """Add what the largest size takes by what the smallest takes, of each series."""
    for name, times in growth.series.items():
        growth.ratios[f"{name}: {growth.at[-1]:,} : {growth.at[0]:,}"] = times[-1] / times[0]


def table(growth: Growth) -> str:
    """Return a part as Markdown, without times by the clock, which grow as those of the CPU do, and times of stages."""
    lines = [f"| {growth.x} | " + " | ".join(f"{at:,}" for at in growth.at) + " |"]
    lines.append("|---" * (len(growth.at) + 1) + "|")
    lines += [
        f"| {name} | " + " | ".join(f"{figure:.3g}" for figure in row) + " |"
        for name, row in growth.series.items()
        if not OFF_THE_PAGE.search(name)
    ]
    return f"{_heading(growth)}\n\n" + "\n".join([*lines, "", *_ratios(growth)]) + "\n"


def summary(growth: Growth) -> str:
    """Return of a part, as Markdown, what its figures come to; the plot has them."""
    return f"{_heading(growth)}\n\n" + "\n".join(_ratios(growth, IN_THE_PLOT)) + "\n"


def _heading(growth: Growth) -> str:
    return f"{growth.title[0].upper()}{growth.title[1:]}; {growth.unit}:"


def _ratios(growth: Growth, left_out: re.Pattern[str] = OFF_THE_PAGE) -> list[str]:
    """Return lines of ratios, those of one kind in one line, and of notes."""
    of_kinds: dict[str, list[str]] = {}
    for name, ratio in growth.ratios.items():
        if not OFF_THE_PAGE.search(name) and not left_out.search(name):
            of, *kind = OF_A_KIND.split(name, maxsplit=1)
            of_kinds.setdefault("".join(kind), []).append(f"{of} {ratio:.2f}")
    found = [f"- {kind}: {'; '.join(said)}" if kind else f"- {'; '.join(said)}" for kind, said in of_kinds.items()]
    return found + [f"- {name}: {note}" for name, note in growth.notes.items() if not left_out.search(name)]


def parts_of(asked: argparse.Namespace) -> dict[str, Callable[[Path], Growth]]:
    """Return each part, with the sizes that were asked for."""
    small = asked.small
    keys = [
        size
        for size in (10_000, 100_000, 1_000_000, 10_000_000)
        if size <= (asked.max_keys or (100_000 if small else size))
    ]
    headers = [1, 4, 16] if small else [1, 4, 16, 64]
    shards = [2, 8] if small else [2, 8, 16, 64]
    rounds = asked.rounds or (4 if small else 24)
    batches = asked.batches or (200 if small else 2_000)
    records = 50_000 if small else 250_000
    return {
        "keys": lambda home: key_growth(home, keys, 10_000, rounds),
        "headers": lambda home: header_growth(home, headers, 2_000 if small else 5_000, rounds),
        "shards": lambda home: shard_growth(home, shards, records, records, max(2, rounds // 4)),
        "batches": lambda home: batch_growth(home, batches, 20_000, 2_000),
        "executors": lambda home: Growth(**executor_growth(home, 20_000 if small else 250_000, 2 if small else 8)),
    }


def write_results(found: Iterable[tuple[str, Growth]]) -> dict[str, Any]:
    """Add what was measured to the file of results; return all that is in it."""
    held: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    held.update((name, asdict(growth)) for name, growth in found)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(held, indent=2) + "\n")
    return held


def write_pages(held: Mapping[str, Any]) -> None:
    """Write what all that was measured comes to into docs/scale.md, and draw docs/growth.svg."""
    growths = [Growth(**held[name]) for name in PARTS if name in held]
    write_page(ROOT / "docs" / "scale.md", "\n".join(map(summary, growths)), "benchmarks/growth.py")
    python = environment_python(BUILD / "environment")
    drawn = ROOT / "docs" / "growth.svg"
    subprocess.run([str(python), str(ROOT / "benchmarks" / "growth_plot.py"), str(RESULTS), str(drawn)], check=True)
    print(f"written: docs/scale.md, {drawn.relative_to(ROOT)}")


def main() -> int:
    """Measure what is asked for, print it, and add it to the file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all of them")
    parser.add_argument("--small", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--rounds", type=int, help="how often each size has its turn")
    parser.add_argument("--max-keys", type=int, help="leave larger stores out")
    parser.add_argument("--batches", type=int, help="of the part of that name")
    parser.add_argument("--directory", help="where to work; a temporary directory if not given")
    parser.add_argument("--write", action="store_true", help="write all results that there are into docs")
    asked = parser.parse_args()
    runs = parts_of(asked)
    found = []
    for name in asked.parts or PARTS:
        print(f"== {name} ...", flush=True)
        home = Path(tempfile.mkdtemp(prefix="statestore-growth-", dir=asked.directory))
        started_s = time.perf_counter()
        try:
            found.append((name, runs[name](home)))
        finally:
            wait_for_uploads()
            shutil.rmtree(home)
        print(table(found[-1][1]), f"({time.perf_counter() - started_s:.0f} s)\n", sep="", flush=True)
        # After each part: what was measured is not lost if a later one fails.
        held = write_results(found)
    if asked.write:
        write_pages(held)
    return 0


if __name__ == "__main__":
    sys.exit(main())
