"""Types of stores: a kind in one format, by the names that `--kind` of the tools and `kind` of the data source take."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat


class StoreType(str, Enum):
    """A kind of store in one format; of window stores also whether duplicates are retained."""

    KV = "kv"
    TS_KV = "ts-kv"
    HEADERS_KV = "headers-kv"
    WINDOW = "window"
    WINDOW_DUP = "window-dup"
    TS_WINDOW = "ts-window"
    TS_WINDOW_DUP = "ts-window-dup"
    HEADERS_WINDOW = "headers-window"
    HEADERS_WINDOW_DUP = "headers-window-dup"
    SESSION = "session"
    HEADERS_SESSION = "headers-session"
    VERSIONED = "versioned"
    HEADERS_VERSIONED = "headers-versioned"

    @property
    def store_kind(self) -> StoreKind:
        """How keys are laid out."""
        return _PARTS[self].kind

    @property
    def store_format(self) -> StoreFormat:
        """How values are laid out."""
        return _PARTS[self].format

    @property
    def retain_duplicates(self) -> bool:
        """Whether a window store keeps every value that is put for a key and window."""
        return _PARTS[self].retain_duplicates

    @classmethod
    def of(cls, spec: StoreSpec) -> StoreType:
        """Return the type of a store."""
        return cls.with_parts(spec.kind, spec.format, spec.retain_duplicates)

    @classmethod
    def with_parts(cls, kind: StoreKind, store_format: StoreFormat, retain_duplicates: bool = False) -> StoreType:
        """Return the type of stores of this kind and format. Raises KeyError if there is none."""
        return _TYPES[_Parts(kind, store_format, retain_duplicates)]

    def in_format(self, store_format: StoreFormat) -> StoreType | None:
        """Return the type of the same kind in another format, None if it has no such format."""
        return _TYPES.get(_PARTS[self]._replace(format=store_format))


class _Parts(NamedTuple):
    kind: StoreKind
    format: StoreFormat
    retain_duplicates: bool = False


_PARTS: Final[dict[StoreType, _Parts]] = {
    StoreType.KV: _Parts(StoreKind.KEY_VALUE, StoreFormat.PLAIN),
    StoreType.TS_KV: _Parts(StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED),
    StoreType.HEADERS_KV: _Parts(StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    StoreType.WINDOW: _Parts(StoreKind.WINDOW, StoreFormat.PLAIN),
    StoreType.WINDOW_DUP: _Parts(StoreKind.WINDOW, StoreFormat.PLAIN, True),
    StoreType.TS_WINDOW: _Parts(StoreKind.WINDOW, StoreFormat.TIMESTAMPED),
    StoreType.TS_WINDOW_DUP: _Parts(StoreKind.WINDOW, StoreFormat.TIMESTAMPED, True),
    StoreType.HEADERS_WINDOW: _Parts(StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    StoreType.HEADERS_WINDOW_DUP: _Parts(StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS, True),
    StoreType.SESSION: _Parts(StoreKind.SESSION, StoreFormat.PLAIN),
    StoreType.HEADERS_SESSION: _Parts(StoreKind.SESSION, StoreFormat.WITH_HEADERS),
    StoreType.VERSIONED: _Parts(StoreKind.VERSIONED, StoreFormat.PLAIN),
    StoreType.HEADERS_VERSIONED: _Parts(StoreKind.VERSIONED, StoreFormat.WITH_HEADERS),
}
_TYPES: Final = {parts: store_type for store_type, parts in _PARTS.items()}
