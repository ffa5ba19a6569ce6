"""Which layout the values of a store have. Recorded beside the store, never guessed from its bytes."""

from __future__ import annotations

from enum import IntEnum


class StoreFormat(IntEnum):
    """The layout of a store's values. On disk and in checkpoints: never renumber, never reuse a number.

    A newer format has a higher number: upgrades go from lower to higher ones. A new one is a module in `format` and a
    row in each table by format: `format.values.stored_value`, `bytestore.kinds.store_spec` and
    `stores.codec`.
    """

    PLAIN = 0
    """The serialised value alone."""

    TIMESTAMPED = 1
    """Timestamp and value: `value_timestamp`."""

    TIMESTAMPED_WITH_HEADERS = 2
    """Headers, timestamp and value: `value_timestamp_headers` (KIP-1271)."""

    WITH_HEADERS = 3
    """Headers and value: `value_headers` (KIP-1271). Sessions and versions have their timestamps elsewhere."""

    @property
    def has_timestamp(self) -> bool:
        """Whether a timestamp stands in the value."""
        return self in (StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_WITH_HEADERS)

    @property
    def has_headers(self) -> bool:
        """Whether headers stand in the value."""
        return self in (StoreFormat.WITH_HEADERS, StoreFormat.TIMESTAMPED_WITH_HEADERS)

    def describe(self) -> str:
        """Return the format in words, for errors and listings."""
        return self.name.lower().replace("_", " ")
