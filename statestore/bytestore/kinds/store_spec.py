"""What is recorded of a store: its name, kind and format, and what else decides where its bytes stand.

Recorded in the state location when a query starts for the first time, and compared at every later start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from statestore.errors import FormatError
from statestore.format.keys.due_key import EXPIRY_SUFFIX
from statestore.format.values.store_format import StoreFormat

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
    """Return whether `name` is one that `check_store_name` lets pass."""
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
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; format and kind go by name, what a kind does not have is left out."""
        recorded: dict[str, Any] = {"name": self.name, "kind": self.kind.value, "format": self.format.name}
        spans = {span: getattr(self, span) for span in _EVERY_SPAN}
        recorded |= {span: milliseconds for span, milliseconds in spans.items() if milliseconds is not None}
        if self.retain_duplicates:
            recorded["retain_duplicates"] = True
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
            )
        except (KeyError, ValueError, TypeError) as cause:
            raise FormatError("recorded store", f"{recorded!r} is not one ({cause!r})") from cause


def require_milliseconds(parameter: str, value: Any, *, least: int = 0) -> None:
    """Raise ValueError unless `value` is an integer from `least` to 2^63 - 1; `parameter` names it."""
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{parameter} must be an integer of milliseconds, {least} or more, got {value!r}")


def expiry_spec(spec: StoreSpec) -> StoreSpec:
    """Return the spec of the store beside a store that says when its entries expire."""
    return StoreSpec(f"{spec.name}{EXPIRY_SUFFIX}", StoreKind.KEY_VALUE, StoreFormat.PLAIN)
