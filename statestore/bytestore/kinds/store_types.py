"""Types of stores: a kind in one format, by the names that `--kind` of the tools and `kind` of the data source take."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat


class StoreType(str, Enum):
    """A kind of store in one format; of window stores also whether duplicates are retained."""

    store_kind: StoreKind  # how keys are laid out
    store_format: StoreFormat  # how values are laid out
    retain_duplicates: bool  # whether a window store keeps every value that is put for a key and window

    def __new__(cls, value: str, *parts: Any) -> StoreType:
        """Make one of its name, kind and format; True behind them is for duplicates."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.store_kind, made.store_format, *duplicates = parts
        made.retain_duplicates = any(duplicates)
        return made

    KV = "kv", StoreKind.KEY_VALUE, StoreFormat.PLAIN
    TS_KV = "ts-kv", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED
    HEADERS_KV = "headers-kv", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS
    WINDOW = "window", StoreKind.WINDOW, StoreFormat.PLAIN
    WINDOW_DUP = "window-dup", StoreKind.WINDOW, StoreFormat.PLAIN, True
    TS_WINDOW = "ts-window", StoreKind.WINDOW, StoreFormat.TIMESTAMPED
    TS_WINDOW_DUP = "ts-window-dup", StoreKind.WINDOW, StoreFormat.TIMESTAMPED, True
    HEADERS_WINDOW = "headers-window", StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS
    HEADERS_WINDOW_DUP = "headers-window-dup", StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS, True
    SESSION = "session", StoreKind.SESSION, StoreFormat.PLAIN
    HEADERS_SESSION = "headers-session", StoreKind.SESSION, StoreFormat.WITH_HEADERS
    VERSIONED = "versioned", StoreKind.VERSIONED, StoreFormat.PLAIN
    HEADERS_VERSIONED = "headers-versioned", StoreKind.VERSIONED, StoreFormat.WITH_HEADERS

    @classmethod
    def of(cls, spec: StoreSpec) -> StoreType:
        """Return the type of a store."""
        return cls.with_parts(spec.kind, spec.format, spec.retain_duplicates)

    @classmethod
    def with_parts(cls, kind: StoreKind, store_format: StoreFormat, retain_duplicates: bool = False) -> StoreType:
        """Return the type of stores of this kind and format. Raises KeyError if there is none."""
        return _TYPES[kind, store_format, retain_duplicates]

    def in_format(self, store_format: StoreFormat) -> StoreType | None:
        """Return the type of the same kind in another format, None if it has no such format."""
        return _TYPES.get((self.store_kind, store_format, self.retain_duplicates))


_TYPES: Final = {(each.store_kind, each.store_format, each.retain_duplicates): each for each in StoreType}
