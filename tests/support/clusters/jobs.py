"""Queries over files of orders that run on a cluster: what they are given, what goes wrong, and what must come out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orders import Order, Total, expected_totals, write_orders
from tests.support.clusters.faults import Fault


@dataclass
class OrderJob:
    """A query over files of orders, one a micro-batch, that an application runs; with what goes wrong in it."""

    home: Path
    via: str
    recovery: dict[str, Any] = field(default_factory=dict)
    """Fields of RecoveryOptions."""
    settings: dict[str, str] = field(default_factory=dict)
    """Of Spark, for this job only."""
    sink: dict[str, str] | None = None
    """`servers`, `topic` and `markers` of a sink of transactions, and `packed` if rows are; None: files in `output`."""
    faults: list[Fault] = field(default_factory=list)
    files: int = 0

    def add(self, batches: Iterable[Sequence[Order]]) -> None:
        """Add the files of these micro-batches."""
        for orders in batches:
            write_orders(orders, self.home / "input" / f"orders-{self.files:04d}.parquet")
            self.files += 1

    def add_fault(self, moment: str, when: str = "before", action: str = "kill", first_batch: int = 1) -> Fault:
        """Let this go wrong, once."""
        directory = self.home / f"fault-{len(self.faults)}"
        directory.mkdir(parents=True)
        self.faults.append(Fault(str(directory), moment, when, action, first_batch))
        return self.faults[-1]

    def to_json(self) -> str:
        """Return the job as an application takes it."""
        return json.dumps({**asdict(self), "home": str(self.home)})

    def executors(self) -> dict[int, dict[int, set[str]]]:
        """Return which executors have opened each shard in each batch, also in vain: shard -> batch -> executors."""
        found: dict[int, dict[int, set[str]]] = {}
        for path in (self.home / "placements").iterdir():
            batch, shard, executor = path.name.split("-")
            found.setdefault(int(shard), {}).setdefault(int(batch), set()).add(executor)
        return found

    def durable_files(self, kind: str) -> set[str]:
        """Return the names of all files of a kind, "deltas" or "snapshots", also of those that nothing refers to."""
        state = self.home / "state"
        return {str(path.relative_to(state)) for path in state.glob(f"shards/*/{kind}/**/*") if path.is_file()}


@dataclass(frozen=True)
class JobResult:
    """What a job has left: the entries of the store, all rows of its output, and the commit pointers, as JSON."""

    totals: list[Any]
    output: list[Any]
    pointers: list[dict[str, Any]]

    @property
    def snapshots(self) -> int:
        """How many snapshots the pointers name."""
        return sum(len(pointer["snapshots"]) for pointer in self.pointers)

    @property
    def deltas(self) -> set[str]:
        """The names of the deltas that are committed."""
        return {name for pointer in self.pointers for name, *_ in pointer["deltas"]}

    @property
    def contents(self) -> dict[str, list[Any]]:
        """All entries of the store and all rows of the output: key, value, timestamp and headers, in order."""
        return {"store": _in_order(self.totals), "output": _in_order(self.output)}


def expected_contents(orders: Sequence[Order]) -> dict[str, list[Any]]:
    """Return what the contents of a job must be, by a plain fold over the orders: each change and each row once."""
    output = expected_output(orders)
    store = [[customer, *_as_json(entry)] for customer, entry in expected_totals(orders).items()]
    return {"store": _in_order(store), "output": _in_order(output)}


def expected_output(orders: Sequence[Order]) -> list[Any]:
    """Return the rows that a job must put out, in the order of the orders."""
    return [
        [order.customer, *_as_json(expected_totals(orders[: number + 1])[order.customer])]
        for number, order in enumerate(orders)
    ]


def _in_order(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=lambda entry: entry[:3])


def _as_json(entry: Total) -> list[Any]:
    total, timestamp_ms, headers = entry
    return [total, timestamp_ms, [[key, value and value.decode()] for key, value in headers]]
