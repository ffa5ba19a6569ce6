"""Chargeback: who has sent how much, by the trails of records. Totals are kept in a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from statestore.format.binary_columns import row_objects, row_sizes
from statestore.format.keys.entry_key import MAP_KEYS, key_at_front, map_entry_key, map_key_of
from statestore.format.serde import Serdes
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_size import content_bytes
from statestore.headers.records import ConsumerRecord, ProducerRecord
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, InterceptorContext
from statestore.middleware.application import TRAIL_HEADER, Application, options
from statestore.middleware.lineage.trail import Entry, Trail, read_trail
from statestore.stores.builder import PartStore
from statestore.stores.stores import Stores

__all__ = ["USAGE_STORE", "Chargeback", "read_usage", "usage_of"]

USAGE_STORE: Final = "chargeback-usage"
"""The store that totals are in."""
NOBODY: Final = ""
"""The principal of records without a trail."""
OTHERS: Final = "*"
"""The principal that stands for all others once a shard has `max_principals` totals."""

_Charged: TypeAlias = Literal["sender", "origin"]
_SingleRecords: TypeAlias = "Iterable[ConsumerRecord[Any, Any] | ProducerRecord[Any, Any]]"


class Traffic(NamedTuple):
    """How much was sent."""

    records: int = 0
    bytes: int = 0
    """Keys, values and headers, as `statestore.headers.size_of` counts them."""

    def __add__(self, other: Traffic) -> Traffic:  # type: ignore[override]  # as a tuple it would be longer
        return Traffic(self.records + other.records, self.bytes + other.bytes)


class Usage(NamedTuple):
    """What one principal has sent: into this query, and out of it."""

    ingoing: Traffic = Traffic()
    outgoing: Traffic = Traffic()

    def __add__(self, other: Usage) -> Usage:  # type: ignore[override]
        return Usage(self.ingoing + other.ingoing, self.outgoing + other.outgoing)


def usage_of(records: RecordColumns | _SingleRecords, charge: _Charged = "sender") -> dict[str, Traffic]:
    """Return the traffic of records by principal: who has sent them, or who has sent them first (`origin`).

    Keys and values are bytes or null. Records without a trail count for "". Raises TrailRefusedError for a malformed
    trail, ValueError for another `charge`.
    """
    _check_charge(charge)
    found: dict[str, Traffic] = {}
    counted = _counted_columns(records, charge) if isinstance(records, RecordColumns) else _counted(records, charge)
    for principal, traffic in counted:
        found[principal] = found.get(principal, Traffic()) + traffic
    return found


def read_usage(entries: Iterable[tuple[bytes, bytes]]) -> dict[str, Usage]:
    """Return the totals by principal of what a store USAGE_STORE holds, of one shard or of all of them."""
    found: dict[str, Usage] = {}
    for key, value in entries:
        principal = _principal(key)
        found[principal] = found.get(principal, Usage()) + _decode(value)
    return found


class Chargeback(Application):
    """Counts what comes in and what goes out, by who has sent it: see `docs/middleware/trail.md`.

    Put it last in a chain, so that it counts what travels. It changes no record.
    """

    kind = "chargeback"
    _options = options(STRING="charge", INT="max.principals")
    not_before: ClassVar[Mapping[str, str]] = {
        "trail": "it charges by the trail as it travels: what goes out has no entry of ours yet, and what comes in "
        "already has",
    }
    not_after: ClassVar[Mapping[str, str]] = {
        "slicing": "only the first slice has the record's trail, so the others would be charged to nobody",
    }
    goes_by = (TRAIL_HEADER,)

    def __init__(self, charge: _Charged = "sender", *, max_principals: int = 1000) -> None:
        """Charge who has sent a record last, or who has sent it first (`origin`).

        A shard keeps totals of `max_principals`; further ones are "*" together. Raises ValueError for another
        `charge`, and for `max_principals` below 1.
        """
        _check_charge(charge)
        if max_principals < 1:
            raise ValueError(f"max_principals must be 1 or more, got {max_principals}")
        self._charge: Final = charge
        self._max_principals: Final = max_principals
        self._store: Any = None
        self._usage: dict[str, Usage] = {}
        self._record_key: bytes | None = None

    def stores(self) -> tuple[PartStore, ...]:
        """Return the store of totals."""
        supplier = Stores.persistent_key_value_store(USAGE_STORE)
        return (PartStore(Stores.key_value_store_builder(supplier, Serdes.bytes(), Serdes.bytes()), MAP_KEYS),)

    def init(self, context: InterceptorContext) -> None:
        """Take the store, and begin to count."""
        self._store = context.state_store(USAGE_STORE)
        self._usage = {}
        self._record_key = None

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Count a record that comes in. Raises TrailRefusedError for a malformed trail."""
        self._count([record], is_ingoing=True)
        self._record_key = record.key or b""
        return (record,)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Count a record that goes out. Raises TrailRefusedError for a malformed trail."""
        self._count([record], is_ingoing=False)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Count records that come in. Raises TrailRefusedError before any is counted."""
        self._count(records, is_ingoing=True)
        if len(records):
            self._record_key = records.key[0].as_py() or b""
        return records

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Count records that go out. Raises TrailRefusedError before any is counted."""
        self._count(records, is_ingoing=False)
        return records

    def finish_batch(self) -> None:
        """Add what was counted to the totals."""
        counted, self._usage = self._usage, {}
        if not counted:
            return
        with self._store.all() as entries:
            keys = {_principal(key): key for key, _ in entries}
        for principal, usage in counted.items():
            if principal not in keys and len(keys) >= self._max_principals and principal not in (NOBODY, OTHERS):
                principal = OTHERS
            if principal not in keys:
                keys[principal] = map_entry_key(self._place(keys), principal.encode())
            known = self._store.get(keys[principal])
            self._store.put(keys[principal], _encode(usage if known is None else _decode(known) + usage))

    def _count(self, records: RecordColumns | _SingleRecords, *, is_ingoing: bool) -> None:
        for principal, traffic in usage_of(records, self._charge).items():
            usage = Usage(ingoing=traffic) if is_ingoing else Usage(outgoing=traffic)
            self._usage[principal] = self._usage.get(principal, Usage()) + usage

    def _place(self, keys: Mapping[str, bytes]) -> bytes:
        """Return the key of a record of this shard. When the state is rescaled, a total moves with that key.

        So totals of several old shards stay apart: their records have other keys.
        """
        if self._record_key is not None:
            return self._record_key
        return key_at_front(next(iter(keys.values()))) if keys else b""

    def __repr__(self) -> str:
        return f"Chargeback({self._charge!r})"


def _counted(records: _SingleRecords, charge: _Charged) -> Iterator[tuple[str, Traffic]]:
    for record in records:
        principal = _charged(read_trail(record.headers).entries, charge)
        yield principal, Traffic(1, content_bytes(record.key, record.value, record.headers.to_bytes()))


def _counted_columns(records: RecordColumns, charge: _Charged) -> Iterator[tuple[str, Traffic]]:
    sizes = row_sizes(records.key) + row_sizes(records.value) + np.maximum(row_sizes(records.headers), 1)
    trails = records.header(TRAIL_HEADER).dictionary_encode(null_encoding="encode")
    numbers = np.asarray(trails.indices)
    counts, sums = np.zeros((2, len(trails.dictionary)), np.int64)
    np.add.at(counts, numbers, 1)
    np.add.at(sums, numbers, sizes)
    for value, count, size in zip(row_objects(trails.dictionary), counts.tolist(), sums.tolist(), strict=True):
        yield _charged(Trail.of_header(value).entries, charge), Traffic(count, size)


def _charged(entries: tuple[Entry, ...], charge: _Charged) -> str:
    return entries[-1 if charge == "sender" else 0].by_whom if entries else NOBODY


def _check_charge(charge: object) -> None:
    if charge not in get_args(_Charged):
        raise ValueError(f"charge must be one of {get_args(_Charged)}, got {charge!r}")


def _principal(key: bytes) -> str:
    return map_key_of(key_at_front(key), key).decode()


def _encode(usage: Usage) -> bytes:
    return b"".join(number.to_bytes(8, "big") for traffic in usage for number in traffic)


def _decode(value: bytes) -> Usage:
    numbers = [int.from_bytes(value[start : start + 8], "big") for start in range(0, 32, 8)]
    return Usage(Traffic(*numbers[:2]), Traffic(*numbers[2:]))
