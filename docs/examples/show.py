"""What the examples print of records, of the store and of the outcome."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Row

from orders import CUSTOMERS, Order, Total, expected_totals
from statestore import Serdes


def show_headers(headers: list[Row] | None) -> str:
    """Return headers in one line, in their order."""
    return "  ".join(f"{h.key}={'null' if h.value is None else h.value.decode()}" for h in headers or [])


def show_totals(rows: Iterable[Row]) -> None:
    """Print result records, one a line."""
    for row in rows:
        total = Serdes.int64().deserialize(bytes(row.value))
        print(f"   {row.key.decode():8} total {total:>6}  {show_headers(row.headers)}")


def show_store(entries: list[Row]) -> None:
    """Print the store's entries as a table."""
    print(f"   {'key':8} {'value':>6}  {'timestamp':13}  headers")
    for row in sorted(entries, key=lambda row: bytes(row.key)):
        total = Serdes.int64().deserialize(bytes(row.value))
        print(f"   {row.key.decode():8} {total:>6}  {row.timestamp_ms:13}  {show_headers(row.headers)}")


def held_totals(entries: list[Row]) -> dict[str, Total]:
    """Return what the store's entries hold, by customer."""
    return {
        row.key.decode(): (
            Serdes.int64().deserialize(bytes(row.value)),
            row.timestamp_ms,
            [(header.key, header.value) for header in row.headers],
        )
        for row in entries
    }


def check_store(entries: list[Row], orders: list[Order]) -> bool:
    """Compare the store with a plain fold over the orders, print the outcome, and return it."""
    found = held_totals(entries)
    expected = expected_totals(orders)
    right = found == expected
    outcome = "all equal" if right else f"DIFFERENT: {sorted(k for k in CUSTOMERS if found.get(k) != expected.get(k))}"
    print(f"\n== Check of {len(expected)} totals, timestamps and headers against a plain fold: {outcome}")
    return right
