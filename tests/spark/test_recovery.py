"""Snapshots, garbage collection and listeners under real queries."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from orders import expected_totals, running_total_topology, seeded_orders
from statestore import RecoveryOptions, Stores, Topology
from statestore.recovery.commit.pointer import CommitPointer
from statestore.spark import read_pointers
from tests.support.spark.queries import OrderQuery

ORDERS = seeded_orders(160)
BATCHES = [ORDERS[start : start + 12] for start in range(0, 160, 12)]


class ListenerToFiles:
    """Takes down restores in a directory: it is called in the processes that restore."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_restore_start(self, shard: int, store: str, starting_version: int, ending_version: int) -> None:
        self._note(shard, ["start", store, starting_version, ending_version])

    def on_batch_restored(self, shard: int, store: str, batch_end_version: int, num_restored: int) -> None:
        self._note(shard, ["batch", store, batch_end_version, num_restored])

    def on_restore_end(self, shard: int, store: str, total_restored: int) -> None:
        self._note(shard, ["end", store, total_restored])

    def _note(self, shard: int, facts: list[Any]) -> None:
        with open(self.directory / f"shard-{shard}", "a") as file:
            file.write(json.dumps(facts) + "\n")


def in_memory_topology() -> Topology:
    topology = running_total_topology()
    (builder,) = topology.store_builders.values()
    topology.store_builders["totals"] = dataclasses.replace(
        builder, supplier=Stores.in_memory_key_value_store("totals")
    )
    return topology


def pointers_of(query: OrderQuery) -> list[CommitPointer]:
    rows = read_pointers(query.spark, query.home / "checkpoint").collect()
    return [CommitPointer.from_json(row.pointer) for row in rows]


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_query_makes_snapshots_collects_garbage_and_is_restored_from_them(order_query: OrderQuery) -> None:
    heard = order_query.home / "heard"
    heard.mkdir()
    options = RecoveryOptions(
        snapshot_every_deltas=2,
        snapshot_budget_ms=60_000,
        retained_versions=1,
        restore_listener=ListenerToFiles(heard),
    )
    order_query.add(*BATCHES[:-1])
    order_query.run(recovery=options)
    assert list(heard.iterdir()) == [], "nothing was lost yet"
    pointers = pointers_of(order_query)
    assert all(len(pointer.snapshots) >= 2 for pointer in pointers)
    for pointer in pointers:
        deltas = order_query.home / f"state/shards/{pointer.shard:04d}/deltas"
        assert len(list(deltas.glob("*.arrow"))) < pointer.version, "older deltas are gone"
    (order_query.home / "local").rename(order_query.home / "lost")  # a worker may still be uploading from it
    order_query.add(BATCHES[-1])
    order_query.run(recovery=options)
    assert order_query.totals() == expected_totals(ORDERS)
    for pointer in pointers:
        told = [json.loads(line) for line in (heard / f"shard-{pointer.shard}").read_text().splitlines()]
        assert told[0] == ["start", "totals", 0, pointer.version]
        assert told[1][2] == pointer.snapshots[-1].version, "first the snapshot, then the deltas since"
        assert told[-1] == ["end", "totals", sum(fact[3] for fact in told if fact[0] == "batch")]


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_in_memory_stores_are_restored_from_snapshots_too(order_query: OrderQuery) -> None:
    options = RecoveryOptions(snapshot_every_deltas=2, snapshot_budget_ms=60_000, retained_versions=2)
    topology = in_memory_topology()
    assert topology.in_memory_stores() == {"totals"}
    order_query.add(*BATCHES[:5])
    order_query.run(topology, recovery=options)
    assert all(pointer.snapshots for pointer in pointers_of(order_query))
    (order_query.home / "local").rename(order_query.home / "lost")  # a worker may still be uploading from it
    order_query.add(*BATCHES[5:7])
    order_query.run(topology, recovery=options)
    assert order_query.totals() == expected_totals(ORDERS[: 7 * 12])
