"""What tools and the data source call kinds of stores: names that say kind and format, as `--kind` takes them."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.store_format import StoreFormat


class Kind(str, Enum):
    """A kind of store in one format."""

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
    def meaning(self) -> Meaning:
        """What it stands for."""
        return _MEANINGS[self]

    @classmethod
    def of(cls, spec: StoreSpec) -> Kind:
        """Return the name of a store's kind and format."""
        return _NAMES[Meaning(spec.kind, spec.format, spec.retain_duplicates)]

    @classmethod
    def with_meaning(cls, meaning: Meaning) -> Kind:
        """Return the name of what `meaning` says. Raises KeyError if there is no such kind of store."""
        return _NAMES[meaning]

    def in_format(self, store_format: StoreFormat) -> Kind | None:
        """Return the name of the same kind in another format, None if it has no such format."""
        return _NAMES.get(self.meaning._replace(format=store_format))


class Meaning(NamedTuple):
    """How keys and values of a kind of store are laid out, and whether it retains duplicates."""

    store_kind: StoreKind
    format: StoreFormat
    retain_duplicates: bool = False


_MEANINGS: Final = {
    Kind.KV: Meaning(StoreKind.KEY_VALUE, StoreFormat.PLAIN),
    Kind.TS_KV: Meaning(StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED),
    Kind.HEADERS_KV: Meaning(StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    Kind.WINDOW: Meaning(StoreKind.WINDOW, StoreFormat.PLAIN),
    Kind.WINDOW_DUP: Meaning(StoreKind.WINDOW, StoreFormat.PLAIN, True),
    Kind.TS_WINDOW: Meaning(StoreKind.WINDOW, StoreFormat.TIMESTAMPED),
    Kind.TS_WINDOW_DUP: Meaning(StoreKind.WINDOW, StoreFormat.TIMESTAMPED, True),
    Kind.HEADERS_WINDOW: Meaning(StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS),
    Kind.HEADERS_WINDOW_DUP: Meaning(StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS, True),
    Kind.SESSION: Meaning(StoreKind.SESSION, StoreFormat.PLAIN),
    Kind.HEADERS_SESSION: Meaning(StoreKind.SESSION, StoreFormat.WITH_HEADERS),
    Kind.VERSIONED: Meaning(StoreKind.VERSIONED, StoreFormat.PLAIN),
    Kind.HEADERS_VERSIONED: Meaning(StoreKind.VERSIONED, StoreFormat.WITH_HEADERS),
}
_NAMES: Final = {meaning: kind for kind, meaning in _MEANINGS.items()}
