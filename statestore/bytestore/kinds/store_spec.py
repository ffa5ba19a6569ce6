"""What is recorded of a store: its name, kind and format, and all else that decides where its bytes are.

Recorded in the state location when a query starts for the first time, and compared at every later start.

Column families have Kafka Streams' names, but for `versionedKeyValueWithHeaders`: no released Kafka Streams has a
versioned store with headers, and trunk keeps its rows in the family of the plain ones, where one would be read as the
other. A shard's database holds all of its stores, so that one write batch changes them together: there a family is
named `STORE:FAMILY`; `:` can't occur in a store name. Kafka Streams has a database for each store or segment.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.errors import FormatError
from statestore.format.keys.due_key import EXPIRY_SUFFIX
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import upgrade_between

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_NAME_LIMIT = 249


class StoreKind(Enum):
    """How keys are laid out. The values are persisted: never rename, never reuse."""

    KEY_VALUE = "key-value"
    VERSIONED = "versioned key-value"
    WINDOW = "window"
    SESSION = "session"

    @property
    def spans(self) -> tuple[str, ...]:
        """Which of `retention_ms`, `segment_interval_ms` and `window_size_ms` a store of this kind has."""
        return _SPANS[self]

    @property
    def is_segmented(self) -> bool:
        """Whether stores of this kind keep their entries in time segments."""
        return "segment_interval_ms" in _SPANS[self]

    @property
    def has_windows(self) -> bool:
        """Whether the entries of a store of this kind are windows, all of one size."""
        return "window_size_ms" in _SPANS[self]


_SEGMENTED: Final = ("retention_ms", "segment_interval_ms")
_EVERY_SPAN: Final = (*_SEGMENTED, "window_size_ms")
_SPANS: Final[dict[StoreKind, tuple[str, ...]]] = {
    StoreKind.KEY_VALUE: (),
    StoreKind.VERSIONED: _SEGMENTED,
    StoreKind.WINDOW: _EVERY_SPAN,
    StoreKind.SESSION: _SEGMENTED,
}
_LEAST: Final = {"segment_interval_ms": 1}


def check_store_name(name: str) -> str:
    """Return `name` if it is a legal Kafka store name: ASCII letters, digits, `.`, `_`, `-`, at most 249 characters.

    Raises ValueError otherwise. Source: Kafka's Named.validate; names become topic, family and directory names.
    """
    if not isinstance(name, str) or not is_store_name(name):
        raise ValueError(
            f"illegal name {name!r}: use 1 to {_NAME_LIMIT} ASCII letters, digits, '.', '_', '-', and not '.' or '..'"
        )
    return name


def is_store_name(name: str) -> bool:
    """Return whether `check_store_name` accepts `name`."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..") and len(name) <= _NAME_LIMIT


@dataclass(frozen=True)
class StoreSpec:
    """A store as it is recorded: two stores hold the same bytes exactly if their specs are equal."""

    name: str
    kind: StoreKind
    format: StoreFormat
    retention_ms: int | None = None
    """How long segmented stores keep what is in them, in milliseconds of stream time; None for key-value stores."""
    segment_interval_ms: int | None = None
    """How much time one segment spans, in milliseconds; None for key-value stores."""
    window_size_ms: int | None = None
    """The size of every window, in milliseconds; None for all but window stores."""
    retain_duplicates: bool = False
    """Whether a window store keeps every value that is put for a key and window."""
    indexed_headers: tuple[str, ...] = ()
    """The names of the headers by which entries are found through an index, in order."""
    through_timestamped: bool = field(default=False, compare=False)
    """Whether plain values that are found may get headers at once, with the timestamp -1. Asked, never recorded."""

    def __post_init__(self) -> None:
        check_store_name(self.name)
        for span in self.kind.spans:
            require_milliseconds(span, getattr(self, span), least=_LEAST.get(span, 0))

    @property
    def retention(self) -> tuple[int, int]:
        """Retention and segment interval in milliseconds, of a segmented store."""
        assert self.retention_ms is not None  # checked when the spec was made
        assert self.segment_interval_ms is not None
        return self.retention_ms, self.segment_interval_ms

    def describe(self) -> str:
        """Return kind and format in words, for errors and listings."""
        parts = [f"{self.kind.value} store, {self.format.describe()}"]
        if self.kind.is_segmented:
            parts.append(f"retention of {self.retention_ms} ms in segments of {self.segment_interval_ms} ms")
        if self.kind.has_windows:
            parts.append(f"windows of {self.window_size_ms} ms")
        if self.retain_duplicates:
            parts.append("with duplicates")
        if self.indexed_headers:
            parts.append(f"with an index of the headers {', '.join(map(repr, self.indexed_headers))}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, with format and kind by name and without what the kind does not have."""
        recorded: dict[str, Any] = {"name": self.name, "kind": self.kind.value, "format": self.format.name}
        spans = {span: getattr(self, span) for span in _EVERY_SPAN}
        recorded |= {span: milliseconds for span, milliseconds in spans.items() if milliseconds is not None}
        if self.retain_duplicates:
            recorded["retain_duplicates"] = True
        if self.indexed_headers:
            recorded["indexed_headers"] = list(self.indexed_headers)
        return recorded

    @classmethod
    def from_json(cls, recorded: dict[str, Any]) -> StoreSpec:
        """Return the spec that `to_json` gave. Raises FormatError if it is not one."""
        try:
            return cls(
                recorded["name"],
                StoreKind(recorded["kind"]),
                StoreFormat[recorded["format"]],
                recorded.get("retention_ms"),
                recorded.get("segment_interval_ms"),
                recorded.get("window_size_ms"),
                bool(recorded.get("retain_duplicates", False)),
                _names(recorded.get("indexed_headers", [])),
            )
        except (KeyError, ValueError, TypeError) as cause:
            raise FormatError("recorded store", f"{recorded!r} is not one ({cause!r})") from cause


def _names(recorded: Any) -> tuple[str, ...]:
    if not isinstance(recorded, list) or not all(isinstance(name, str) for name in recorded):
        raise ValueError("indexed_headers must be a list of names")
    return tuple(recorded)


def require_milliseconds(parameter: str, value: Any, *, least: int = 0) -> None:
    """Raise ValueError unless `value` is an integer from `least` to 2^63 - 1; `parameter` names it."""
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{parameter} must be an integer of milliseconds, {least} or more, got {value!r}")


def expiry_spec(spec: StoreSpec) -> StoreSpec:
    """Return the spec of the store beside `spec` that says when its entries expire."""
    return StoreSpec(f"{spec.name}{EXPIRY_SUFFIX}", StoreKind.KEY_VALUE, StoreFormat.PLAIN)


_KEY_VALUE: Final = {
    StoreFormat.PLAIN: DEFAULT_FAMILY,
    StoreFormat.TIMESTAMPED: "keyValueWithTimestamp",
    StoreFormat.TIMESTAMPED_WITH_HEADERS: "keyValueWithTimestampAndHeaders",
}
FAMILIES: Final[dict[StoreKind, dict[StoreFormat, str]]] = {
    StoreKind.KEY_VALUE: _KEY_VALUE,
    StoreKind.WINDOW: _KEY_VALUE,
    StoreKind.SESSION: {StoreFormat.PLAIN: DEFAULT_FAMILY, StoreFormat.WITH_HEADERS: "sessionKeyValueWithHeaders"},
    StoreKind.VERSIONED: {StoreFormat.PLAIN: DEFAULT_FAMILY, StoreFormat.WITH_HEADERS: "versionedKeyValueWithHeaders"},
}


def skips_a_step(older: StoreFormat, newer: StoreFormat) -> bool:
    """Return whether an upgrade takes plain values to headers at once: KIP-1271 has them timestamped first."""
    return (older, newer) == (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED_WITH_HEADERS)


def older_formats(kind: StoreKind, store_format: StoreFormat) -> tuple[StoreFormat, ...]:
    """Return the formats that a store of this kind and format can be upgraded from, the newest first."""
    older = [known for known in FAMILIES[kind] if upgrade_between(known, store_format) is not None]
    return tuple(sorted(older, reverse=True))


def column_family(spec: StoreSpec, store_format: StoreFormat | None = None) -> str:
    """Return the name of the column family that holds the entries of `spec`, in another format if one is given."""
    return f"{spec.name}:{FAMILIES[spec.kind][spec.format if store_format is None else store_format]}"


def index_family(spec: StoreSpec) -> str | None:
    """Return the name of the column family with the index of the headers of `spec`; None if it has none.

    It begins with `:`, which no family of entries does, so a release that knows no indexes drops it before it writes
    entries. It has the names of the headers, so a store that indexes others drops it, too.
    """
    if not spec.indexed_headers or not spec.format.has_headers:
        return None
    names = json.dumps(spec.indexed_headers).encode()
    return f":{spec.name}:{blake2b(names, digest_size=16).hexdigest()}"


def split_column_family(name: str) -> tuple[str, str]:
    """Return store and FAMILY of a column family that is named as above; FAMILY is empty if it is not.

    The store of an index's family is empty.
    """
    store, _, family = name.partition(":")
    return store, family


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
