"""Suppliers: where a store keeps its bytes, and what of its layout does not depend on the values' format.

Source: Kafka's *BytesStoreSupplier. A supplier of an in-memory store leaves the format to the builder, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any, ClassVar, Final, TypeVar

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, check_store_name, require_milliseconds
from statestore.format.values.store_format import StoreFormat

Duration = timedelta | int  # a time span; an int is milliseconds

Supplier = TypeVar("Supplier", bound="BytesStoreSupplier")

_MIN_SEGMENT_INTERVAL_MS = 60_000
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class BytesStoreSupplier:
    """Where a store keeps its bytes; a `format` of None is the builder's choice."""

    kind: ClassVar[StoreKind]
    _retention_parameter: ClassVar[str] = "retention_period"
    """What Kafka calls the retention, in errors."""

    name: str
    format: StoreFormat | None
    persistent: bool
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    window_size_ms: int | None = None
    retain_duplicates: bool = False

    def __post_init__(self) -> None:
        check_store_name(self.name)

    def spec(self, store_format: StoreFormat) -> StoreSpec:
        """Return what is recorded of the store with values in this format."""
        sizes = self.retention_ms, self.segment_interval_ms, self.window_size_ms
        return StoreSpec(self.name, self.kind, store_format, *sizes, self.retain_duplicates)


class KeyValueBytesStoreSupplier(BytesStoreSupplier):
    """Where a key-value store keeps its bytes."""

    kind = StoreKind.KEY_VALUE


class VersionedBytesStoreSupplier(BytesStoreSupplier):
    """Where a versioned store keeps its bytes. `retention_ms` is its history retention, and grace period."""

    kind = StoreKind.VERSIONED
    _retention_parameter = "history_retention"


class WindowBytesStoreSupplier(BytesStoreSupplier):
    """Where a window store keeps its bytes."""

    kind = StoreKind.WINDOW


class SessionBytesStoreSupplier(BytesStoreSupplier):
    """Where a session store keeps its bytes."""

    kind = StoreKind.SESSION


def in_milliseconds(span: Duration) -> int:
    """Return a time span in milliseconds, rounded down. What is neither a timedelta nor an int comes back as it is."""
    return span // _MILLISECOND if isinstance(span, timedelta) else span


def milliseconds(parameter: str, duration: Duration, *, least: int = 0) -> int:
    """Return a time span in milliseconds. Raises ValueError, naming the parameter, unless it is `least` or more."""
    value = in_milliseconds(duration)
    require_milliseconds(parameter, value, least=least)
    return value


def window_supplier(
    name: str,
    store_format: StoreFormat | None,
    retention_period: Duration,
    window_size: Duration,
    retain_duplicates: bool,
    segment_interval: Duration | None,
) -> WindowBytesStoreSupplier:
    """Return a supplier of a window store; persistent if the format is given."""
    retention_ms = milliseconds(WindowBytesStoreSupplier._retention_parameter, retention_period)
    window_size_ms = milliseconds("window_size", window_size)
    if retention_ms < window_size_ms:
        raise ValueError(
            f"retention_period ({retention_ms} ms) must not be shorter than window_size ({window_size_ms} ms): store "
            f"{name!r} would forget a window before it ends"
        )
    sizes = window_size_ms, bool(retain_duplicates)
    return segmented(WindowBytesStoreSupplier, name, store_format, retention_ms, segment_interval, *sizes)


def segmented(
    supplier_class: type[Supplier],
    name: str,
    store_format: StoreFormat | None,
    retention: Duration,
    segment_interval: Duration | None,
    *more: Any,
) -> Supplier:
    """Return a supplier of a store in segments; persistent if the format is given."""
    retention_ms = milliseconds(supplier_class._retention_parameter, retention)
    interval_ms = (
        default_segment_interval_ms(supplier_class.kind, retention_ms)
        if segment_interval is None
        else milliseconds("segment_interval", segment_interval, least=1)
    )
    return supplier_class(name, store_format, store_format is not None, retention_ms, interval_ms, *more)


_VERSIONED_SEGMENTS: Final = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000), (inf, 24, 300_000))
"""Up to which history a versioned store has how many segments, and the least that each spans, in ms.

Source: RocksDbVersionedKeyValueBytesStoreSupplier.
"""


def default_segment_interval_ms(kind: StoreKind, retention_ms: int) -> int:
    """Return how much time a segment of a segmented store spans if nobody says, in ms: Kafka's choice."""
    if LAYOUTS[kind].keeps_versions:
        _, parts, least_ms = next(each for each in _VERSIONED_SEGMENTS if retention_ms <= each[0])
        return max(retention_ms // parts, least_ms)
    return max(retention_ms // 2, _MIN_SEGMENT_INTERVAL_MS)
