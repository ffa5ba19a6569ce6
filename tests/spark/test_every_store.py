"""Every kind of store in a streaming query: across batches, restarts and lost disks, and through a format upgrade."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from orders import Order, RunningTotal, running_total_topology, seeded_orders
from statestore import Headers, ProcessorContext, Record, RecoveryOptions, Stores, Topology, ValueAndTimestamp
from statestore.errors import StoreFormatError, TopologyError
from tests.support.spark.every_kind import GAP_MS, INT, KEY, WINDOW_MS, EveryKind, every_kind_topology
from tests.support.spark.queries import OrderQuery

ORDERS = seeded_orders(120)
BATCHES = [ORDERS[start : start + 40] for start in range(0, 120, 40)]


class EveryKindAndCounts(EveryKind):
    """Counts orders in memory, too."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.state_store("counts")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        super().process(record)
        seen = self.counts.get(record.key)
        self.counts.put(record.key, ValueAndTimestamp((seen.value if seen else 0) + 1, record.timestamp_ms))


def topology() -> Topology:
    """Return every kind of store; windows are cached, and versions measured."""
    counts = Stores.timestamped_key_value_store_builder(Stores.in_memory_key_value_store("counts"), KEY, INT)
    made = every_kind_topology(EveryKindAndCounts, counts)
    made.store_builders["windows"] = made.store_builders["windows"].with_caching_enabled()
    made.store_builders["versions"] = made.store_builders["versions"].with_metrics_enabled()
    return made


Key = tuple[str, int | None, int | None]
Content = dict[Key, tuple[int, "list[tuple[str, bytes | None]]"]]


def expected() -> dict[str, Content]:
    """Return what the stores must hold, found without any store. Within a shard orders come in their own order."""
    totals: Content = {}
    windows: Content = {}
    counts: Content = {}
    versions: dict[str, dict[int, Order]] = {}
    by_customer: dict[str, list[Order]] = {}
    for order in ORDERS:
        key, time_ms = order.customer, order.timestamp_ms
        start_ms = time_ms - time_ms % WINDOW_MS
        window = (key, start_ms, start_ms + WINDOW_MS)
        windows[window] = (windows.get(window, (0, []))[0] + order.amount, order.headers)
        of_key = (key, None, None)
        totals[of_key] = (totals.get(of_key, (0, []))[0] + order.amount, order.headers)
        counts[of_key] = (counts.get(of_key, (0, []))[0] + 1, [])
        versions.setdefault(key, {})[time_ms] = order
        by_customer.setdefault(key, []).append(order)
    return {
        "totals": totals,
        "windows": windows,
        "counts": counts,
        "versions": {
            (key, time_ms, later): (found[time_ms].amount, found[time_ms].headers)
            for key, found in versions.items()
            for time_ms, later in zip(sorted(found), [*sorted(found)[1:], None], strict=True)
            if found[time_ms].amount % 5
        },
        "sessions": {
            session: content for key, orders in by_customer.items() for session, content in sessions(key, orders)
        },
    }


def sessions(key: str, orders: list[Order]) -> list[tuple[Key, Any]]:
    """Return one customer's sessions: runs of orders at most the gap apart; headers are those of the last to arrive."""
    runs: list[list[Order]] = []
    for order in sorted(orders, key=lambda order: order.timestamp_ms):
        if runs and order.timestamp_ms - runs[-1][-1].timestamp_ms <= GAP_MS:
            runs[-1].append(order)
        else:
            runs.append([order])
    arrival = {id(order): number for number, order in enumerate(orders)}
    return [
        (
            (key, run[0].timestamp_ms, run[-1].timestamp_ms),
            (sum(order.amount for order in run), max(run, key=lambda order: arrival[id(order)]).headers),
        )
        for run in runs
    ]


def content(query: OrderQuery, store: str) -> Content:
    rows = query.rows_of(store)
    found = {
        (row.key.decode(), row.start_ms, row.end_ms): (
            INT.deserialize(bytes(row.value)),
            [(header.key, header.value) for header in row.headers or []],
        )
        for row in rows
    }
    assert len(found) == len(rows), "an entry twice"
    return found


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
@pytest.mark.slow
def test_every_kind_of_store_holds_what_it_should(order_query: OrderQuery) -> None:
    for number, batch in enumerate(BATCHES):
        order_query.add(batch)
        order_query.run(topology())
        if number == 1:
            shutil.rmtree(order_query.home / "local")
    wanted = expected()
    for store in wanted:
        assert content(order_query, store) == wanted[store], store
    assert len(wanted["sessions"]) > len({order.customer for order in ORDERS}), "the data has sessions to tell apart"


class TotalWithoutHeaders(RunningTotal):
    """Keeps what a timestamped store has room for."""

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        seen = self.totals.get(record.key)
        total = (seen.value if seen else 0) + record.value["amount"]
        self.totals.put(record.key, ValueAndTimestamp(total, record.timestamp_ms))


def timestamped_topology() -> Topology:
    """Return the running total as it was before its store had headers."""
    made = running_total_topology()
    made.processors["total"].supplier = TotalWithoutHeaders
    supplier = Stores.persistent_timestamped_key_value_store("totals")
    made.store_builders["totals"] = Stores.timestamped_key_value_store_builder(supplier, KEY, INT)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("via", "lost"),
    [("transform_with_state", False), ("apply_in_pandas_with_state", True)],
    ids=["upgraded in place", "restored from deltas"],
)
def test_one_restart_upgrades_a_store_to_headers(order_query: OrderQuery, lost: bool) -> None:
    early = [order for order in BATCHES[0] if order.customer != "ada"]
    late = [order for order in BATCHES[1] if order.customer in ("ada", "chen")]
    assert {order.customer for order in early} > {"chen"}
    order_query.add(early)
    order_query.run(timestamped_topology())
    before = content(order_query, "totals")
    assert all(headers == [] for _, headers in before.values())
    if lost:
        shutil.rmtree(order_query.home / "local")

    order_query.add(late)
    order_query.run(recovery=RecoveryOptions(upgrade_budget_ms=0))
    wanted = {key: value for key, value in before.items() if key[0] not in ("ada", "chen")}
    for order in late:
        total = wanted.get((order.customer, None, None), before.get((order.customer, None, None), (0, [])))[0]
        wanted[order.customer, None, None] = (total + order.amount, order.headers)
    assert content(order_query, "totals") == wanted

    with pytest.raises(StoreFormatError, match=r"totals.*timestamped with headers.*asked for as.*timestamped"):
        order_query.run(timestamped_topology())
    assert content(order_query, "totals") == wanted


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_store_that_is_not_logged_is_refused(order_query: OrderQuery) -> None:
    made = running_total_topology()
    made.store_builders["totals"] = made.store_builders["totals"].with_logging_disabled()
    with pytest.raises(TopologyError, match=r"totals.*logging disabled"):
        order_query.run(made)


def test_headers_of_the_orders_are_not_all_the_same() -> None:
    assert len({str(order.headers) for order in ORDERS}) > len(ORDERS) // 2
    assert any(Headers(order.headers) for order in ORDERS)
