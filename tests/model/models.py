"""Stores as plain dicts: what a store of each kind must hold after what was put into it.

Each model takes what `tests.conformance.stacks` puts, an entry and what the store holds of it, and says what reads
return. Retention and segments are those of `stacks`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from statestore import ResultOrder, VersionedRecordWithHeaders, Windowed
from statestore.format.keys.window_key import MAX_TIME_MS, encode_session_key, encode_window_key
from tests.conformance.stacks import RETENTION_MS, SEGMENT_MS, WINDOW_MS, Entry
from tests.support.soak.version_history import Found, VersionHistory

# One begins another, so that windows and sessions interleave; times span several retentions.
KEYS = [b"", b"k", b"k\x00", b"k\x00\x00\x00\x00\x00\x00\x00\x14", b"l", b"\xff", b"\xff\xff"]
keys = st.sampled_from(KEYS)
bounds = st.none() | keys
values = st.none() | st.integers(0, 9)
times = st.integers(0, 120) | st.integers(100, 400)


class KeyValueModel:
    """A key-value store."""

    entries = st.tuples(keys, values)

    def __init__(self) -> None:
        self.held: dict[bytes, Any] = {}

    def put(self, entry: Entry, held: Any) -> None:
        self.held.pop(entry[0], None)
        if held is not None:
            self.held[entry[0]] = held

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> list[Any]:
        found = (pair for pair in self.held.items() if (start or b"") <= pair[0] and (end is None or pair[0] <= end))
        return sorted(found, key=lambda pair: pair[0], reverse=reverse)

    def content(self) -> Any:
        return self.range(None, None)

    @staticmethod
    def content_of(store: Any) -> Any:
        return list(store.all())


class _WithTime:
    """What stores that forget have in common."""

    def __init__(self) -> None:
        self.stream_time_ms = -1

    def advance(self, time_ms: int) -> None:
        self.stream_time_ms = max(self.stream_time_ms, time_ms)

    def is_visible(self, time_ms: int) -> bool:
        return time_ms > self.stream_time_ms - RETENTION_MS


def _within(key: bytes, start: bytes | None, end: bytes | None) -> bool:
    return (start or b"") <= key and (end is None or key <= end)


class WindowModel(_WithTime):
    """A window store. What can't be seen is as good as gone: time does not go back."""

    entries = st.tuples(keys, values, times)

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[bytes, int], Any] = {}

    def put(self, entry: Entry, held: Any) -> None:
        key, _, start_ms = entry
        self.advance(start_ms)
        self.held.pop((key, start_ms), None)
        if held is not None:
            self.held[key, start_ms] = held

    def get(self, key: bytes, start_ms: int) -> Any:
        return self.held.get((key, start_ms)) if self.is_visible(start_ms) else None

    def find(
        self, start: bytes | None, end: bytes | None, first_ms: int, last_ms: int, *, reverse: bool = False
    ) -> list[tuple[Windowed, Any]]:
        found = [
            (key, start_ms)
            for key, start_ms in self.held
            if _within(key, start, end) and first_ms <= start_ms <= last_ms and self.is_visible(start_ms)
        ]
        found.sort(key=lambda window: (window[1] // SEGMENT_MS, encode_window_key(*window)), reverse=reverse)
        return [(Windowed(key, start_ms, start_ms + WINDOW_MS), self.held[key, start_ms]) for key, start_ms in found]

    def content(self) -> Any:
        return self.find(None, None, 0, MAX_TIME_MS)

    @staticmethod
    def content_of(store: Any) -> Any:
        return list(store.all())


class DuplicatesModel(_WithTime):
    """A window store that retains duplicates. Keys have one length: else numbers of duplicates decide on the order."""

    keys = st.sampled_from([b"a", b"b", b"\xff"])
    entries = st.tuples(keys, values, times)

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[bytes, int], list[Any]] = {}

    def put(self, entry: Entry, held: Any) -> None:
        key, _, start_ms = entry
        if held is None:
            return
        # A window whose segment has expired is not stored; it could not be seen either.
        self.advance(start_ms)
        self.held.setdefault((key, start_ms), []).append(held)

    def get(self, key: bytes, start_ms: int) -> Any:
        return self.held.get((key, start_ms), [None])[-1] if self.is_visible(start_ms) else None

    def content(self) -> Any:
        windows = sorted(self.held, key=lambda window: (window[1] // SEGMENT_MS, window))
        return [
            (Windowed(key, start_ms, start_ms + WINDOW_MS), held)
            for key, start_ms in windows
            if self.is_visible(start_ms)
            for held in self.held[key, start_ms]
        ]

    @staticmethod
    def content_of(store: Any) -> Any:
        return list(store.all())


class SessionModel(_WithTime):
    """A session store."""

    entries = st.tuples(keys, values, times, st.integers(0, 60)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[2], drawn[2] + drawn[3])
    )

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[Windowed, Any] = {}

    def put(self, entry: Entry, held: Any) -> None:
        session = Windowed(entry[0], entry[2], entry[3])
        self.advance(session.end_ms)
        self.held.pop(session, None)
        if held is not None:
            self.held[session] = held

    def get(self, session: Windowed) -> Any:
        return self.held.get(session) if self.is_visible(session.end_ms) else None

    def find(
        self,
        start: bytes | None,
        end: bytes | None,
        earliest_end_ms: int,
        latest_start_ms: int,
        *,
        latest_end_ms: int = MAX_TIME_MS,
        reverse: bool = False,
    ) -> list[tuple[Windowed, Any]]:
        found = [
            session
            for session in self.held
            if _within(session.key, start, end)
            and earliest_end_ms <= session.end_ms <= latest_end_ms
            and session.start_ms <= latest_start_ms
            and self.is_visible(session.end_ms)
        ]
        found.sort(key=lambda one: (one.end_ms // SEGMENT_MS, encode_session_key(*one)), reverse=reverse)
        return [(session, self.held[session]) for session in found]

    def content(self) -> Any:
        return self.find(None, None, 0, MAX_TIME_MS)

    @staticmethod
    def content_of(store: Any) -> Any:
        return list(store.fetch(None, None))


class VersionedModel(VersionHistory):
    """A versioned store. A value of None is a tombstone."""

    # Few: what versions do to each other is what is hard, and versions of one time most of all.
    keys = st.sampled_from(KEYS[1:4])
    times = st.sampled_from([20, 40]) | times
    entries = st.tuples(keys, values, times)

    def __init__(self) -> None:
        super().__init__(RETENTION_MS, SEGMENT_MS)

    def put(self, entry: Entry, held: Any) -> int:
        key, _, time_ms = entry
        return self.add(key, held, time_ms)

    def content(self) -> Any:
        return {key: self.between(key, 0, MAX_TIME_MS) for key in KEYS}

    @staticmethod
    def content_of(store: Any) -> Any:
        return {key: [found(one) for one in store.get(key, 0, MAX_TIME_MS, ResultOrder.ASCENDING)] for key in KEYS}


def found(version: Any) -> Found | None:
    """Return a version as the model has it: what is held of it is its value, with its headers if the store has some."""
    if version is None:
        return None
    has_headers = isinstance(version, VersionedRecordWithHeaders)
    held = (version.value, version.headers) if has_headers else (version.value,)
    return held, version.timestamp_ms, version.valid_to_ms


Model = KeyValueModel | WindowModel | DuplicatesModel | SessionModel | VersionedModel


def copied(models: dict[str, Model]) -> dict[str, Model]:
    """Return models that go their own way from here."""
    return deepcopy(models)
