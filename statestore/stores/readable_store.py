"""What every store that can only be read does, and what a store is made of: serdes, layers, iterators."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Final, NoReturn, TypeVar

import pyarrow as pa

from statestore.bytestore.engines.scans import prefix_end
from statestore.bytestore.header_index import HeaderIndex, header_index, pairs_of
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import MAX_SEGMENT_ID, SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Pair, RecordContext
from statestore.errors import DeserializationError, FormatError, StoreError
from statestore.errors.readable import shape_of
from statestore.errors.state import StoreClosedError
from statestore.format.binary_columns import as_one_array
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.recovery.commit.changelog import Changelog
from statestore.stores.codec import EntryColumns, HeldColumns
from statestore.stores.entry_codec import EntryCodec
from statestore.stores.iterator import StoreIterator, Windowed
from statestore.stores.layers.layer import Drops, Expires, HoldsBack
from statestore.stores.supplier import in_milliseconds


@dataclass(frozen=True)
class StoreStack:
    """The byte stores under a typed store: layers, down to the bytes that a driver provides."""

    top: ByteStore  # the outermost one: what the typed store reads and writes
    retaining: Drops | None = None
    cache: HoldsBack | None = None
    expiring: Expires | None = None


@dataclass(frozen=True)
class StoreParts:
    """What every typed store has."""

    spec: StoreSpec
    entries: EntryCodec
    stack: StoreStack


@dataclass(frozen=True)
class SegmentedParts(StoreParts):
    """What a store of windows or sessions has."""

    segments: Segments


@dataclass(frozen=True)
class VersionedParts(SegmentedParts):
    """What a versioned store has, which logs by itself: its layers see versions, not bytes."""

    changelog: Changelog | None
    written_for: RecordContext  # the record that is logged with a write


E = TypeVar("E")

WRITES: Final = frozenset({"put", "put_value", "put_if_absent", "put_all", "put_many", "delete", "remove"})
_OF_THE_STORE_ITSELF: Final = frozenset(
    {"close", "flush", "delete_expired", "watch_expired", "upgrade_progress", "finish_upgrade"}
)


class ReadableStore:
    """A store of typed keys and values over bytes, or a view of one. Raises StoreClosedError once it is closed."""

    _FORMS: ClassVar[Mapping[str, ReadForms]] = {}
    """What the overloaded methods take; the others have it in their signatures."""
    _parts: StoreParts

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._inner = parts.stack.top
        self.name = self._inner.name
        entries = parts.entries
        serdes, codec = entries.serdes, entries.values
        keys = entries.keys_with_headers()
        self._keys = keys  # passes headers to the serde of keys; None if it takes none, or the store has none
        self._key_bytes: Callable[[Any], bytes] = serdes.key_serde.serialize if keys is None else keys.raw_key
        self._keeps_keys = keys is None and serdes.key_serde.writes_bytes
        """Whether a key that is bytes is written as it is."""
        self._key_object = serdes.key_serde.deserialize
        self._decode_raw = codec.decode
        self._decode_values = codec.decode_values
        self._decode_pairs = codec.decode_pairs
        self._serde_names = f"{serdes.key_serde.name} and {serdes.value_serde.name}"

    @property
    def is_open(self) -> bool:
        """Whether the store has not been closed yet."""
        return self._inner.is_open

    @property
    def stream_time_ms(self) -> int | None:
        """The latest time that was put into the store; None for a store that does not keep time."""
        return None

    def read_only(self) -> ReadableStore:
        """Return a view of the store that has its methods to read, and no others; of a view, itself."""
        return self

    def by_header(self, name: str, value: bytes | str) -> StoreIterator[tuple[Any, Any]]:
        """Yield the entries that have an indexed header of this name with this value, each with its key.

        In the order of the bytes of keys, in stores of windows and sessions segment by segment; of a versioned store
        the latest versions. Text is taken as UTF-8. If an entry has several headers of that name, each counts. Finds
        the entries that are there at the call, and reads each when its turn comes: one that has changed by then shows
        as it is then, if it still has the header. Raises StoreError if the header is not indexed.
        """
        if not isinstance(value, bytes | str):
            raise TypeError(f"store {self.name!r}: a header's value must be bytes or text, not {shape_of(value)}")
        names = self._parts.spec.indexed_headers
        if name not in names:
            known = f"indexed are {', '.join(map(repr, names))}" if names else "it has no index"
            raise StoreError(
                self.name,
                f"can't find entries by the header {name!r}: {known}. See with_header_index() of builders",
            )
        self._require_open()
        return self._iterate_stored(self._stored_by_header(name, value.encode() if isinstance(value, str) else value))

    def _stored_by_header(self, name: str, value: bytes) -> Iterator[Pair]:
        """Return the pairs to show of the entries that have a header at the call."""
        index = self._header_index
        if index is None:
            raise StoreError(self.name, "its bytes have no index of headers")
        has = index.header_keys.has
        found = [index.keys_with_header(name, value, segment) for segment in self._indexed_segments()]
        pairs = pairs_of(self._inner, chain.from_iterable(found))
        return ((key, stored) for key, stored in pairs if has(stored, name, value))

    @cached_property
    def _header_index(self) -> HeaderIndex | None:
        return header_index(self._inner)

    def _indexed_segments(self) -> Iterable[bytes]:
        """Return the key prefix of each segment that may have entries to show."""
        return (b"",)

    def _iterate_stored(self, pairs: Iterator[Pair]) -> StoreIterator[tuple[Any, Any]]:
        """Yield what the store shows of its pairs."""
        return self._iterate_pairs(pairs)

    def __getattr__(self, name: str) -> Any:
        if name in WRITES or name in _OF_THE_STORE_ITSELF:
            raise AttributeError(f"store {self.__dict__.get('name')!r} can only be read here: it has no {name}()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _require_key(self, key: Any) -> bytes:
        if key is None:
            self._refuse_key()
        return self._key_bytes(key)

    def _bound(self, key: Any) -> bytes | None:
        return None if key is None else self._key_bytes(key)

    def _refuse_key(self) -> NoReturn:
        raise TypeError(f"store {self.name!r}: a key must not be None")

    def _require_open(self) -> None:
        if not self.is_open:
            raise StoreClosedError(self.name)

    def _decode(self, stored: bytes) -> Any:
        try:
            return self._decode_raw(stored)
        except (FormatError, DeserializationError) as cause:
            raise self._unreadable(cause) from cause

    def _unreadable(self, cause: Exception) -> StoreError:
        return StoreError(
            self.name,
            f"a stored entry can't be read by the serdes {self._serde_names} ({cause}). Give the store the serdes that "
            "it was written with",
        )

    def _iterate(self, entries: Generator[E, None, None]) -> StoreIterator[E]:
        return StoreIterator(self.name, self._guard(entries))

    def _guard(self, entries: Generator[E, None, None]) -> Generator[E, None, None]:
        """Yield the entries; say so if they end because the store was closed, or can't be read."""
        try:
            yield from entries
        except (FormatError, DeserializationError) as cause:
            raise self._unreadable(cause) from cause
        self._require_open()

    def _columns(self) -> EntryColumns:
        """Return what makes columns of the store's entries. Raises TypeError if one of the serdes has none."""
        entries = self._parts.entries
        return EntryColumns(self.name, self._parts.spec.format, entries.serdes.key_serde, entries.serdes.value_serde)

    def _held(self, columns: EntryColumns, stored: pa.BinaryArray | pa.ChunkedArray) -> HeldColumns:
        try:
            return columns.held(as_one_array(stored, "stored values"))
        except (FormatError, DeserializationError) as cause:
            raise self._unreadable(cause) from cause

    def _iterate_pairs(self, pairs: Iterator[Pair]) -> StoreIterator[tuple[Any, Any]]:
        if self._keys is not None or self._decode_pairs is None:
            return self._iterate(self._each_pair(pairs))
        key_object = None if self._parts.entries.serdes.key_serde.is_identity else self._key_object
        return StoreIterator(self.name, self._decode_pairs(pairs, key_object, self._unreadable, self._require_open))

    def _each_pair(self, pairs: Iterator[Pair]) -> Generator[tuple[Any, Any], None, None]:
        if self._keys is not None:
            return (self._keys.pair(key, stored) for key, stored in pairs)
        key_object, decode = self._key_object, self._decode_raw
        return ((key_object(key), decode(stored)) for key, stored in pairs)


class SegmentedReadableStore(ReadableStore):
    """A window or session store, or a view: windows are shown by their starts, and sessions by their ends."""

    _parts: SegmentedParts

    def __init__(self, parts: SegmentedParts) -> None:
        super().__init__(parts)
        self._segments = parts.segments

    @property
    def stream_time_ms(self) -> int:
        """The latest window start, or session end, that was put; -1 before the first, as far as is known."""
        return self._segments.stream_time_ms

    @property
    def first_visible_ms(self) -> int:
        """The earliest window start, or session end, that is shown, in milliseconds since the epoch."""
        return self._segments.first_visible_ms

    def _scans(
        self, times_ms: tuple[int, int], bounds: tuple[bytes | None, bytes | None], *, reverse: bool
    ) -> list[Iterator[Pair]]:
        """Return a scan of each segment from the first to the last time, as of the call: more than belongs to them.

        `bounds` are the first and last key within each segment, in bytes. All is inclusive, None = open.
        """
        self._require_open()  # a scan of no segment would not notice
        segments, (first_ms, last_ms), (lower, upper) = self._segments, times_ms, bounds
        first = max(segments.id_of(max(0, first_ms)), segments.first_live)
        scans: list[Iterator[Pair]] = []
        for segment_id in segments.ids(first, segments.id_of(max(0, last_ms)), reverse=reverse):
            prefix = segment_prefix(segment_id)
            # The end is inclusive, but every key is longer than a segment's id.
            end = prefix_end(prefix) if upper is None else prefix + upper
            scans.append(self._inner.range(prefix + (lower or b""), end, reverse=reverse))
        return scans

    def _indexed_segments(self) -> Iterable[bytes]:
        return map(segment_prefix, self._segments.ids(self._segments.first_live, MAX_SEGMENT_ID))

    def _stored_by_header(self, name: str, value: bytes) -> Iterator[Pair]:
        time_ms, first_ms = layout_of(self._parts.spec).put_time_ms, self.first_visible_ms
        pairs = super()._stored_by_header(name, value)
        return (pair for pair in pairs if time_ms(pair[0][SEGMENT_ID_SIZE:]) >= first_ms)

    def _iterate_stored(self, pairs: Iterator[Pair]) -> StoreIterator[tuple[Any, Any]]:
        return self._iterate(self._each_windowed(pairs))

    def _each_windowed(self, pairs: Iterator[Pair]) -> Generator[tuple[Windowed, Any], None, None]:
        keys, key_object, decode = self._keys, self._key_object, self._decode_raw
        for raw_key, start_ms, end_ms, stored in layout_of(self._parts.spec).entries(pairs):
            key, held = (key_object(raw_key), decode(stored)) if keys is None else keys.pair(raw_key, stored)
            assert start_ms is not None  # windows and sessions have both
            assert end_ms is not None
            yield Windowed(key, start_ms, end_ms), held

    def _windowed(
        self,
        scans: list[Iterator[Pair]],
        split: Callable[[bytes], tuple[bytes, int, int]],
        is_wanted: Callable[[bytes, int, int], bool],
    ) -> Generator[tuple[Windowed, Any], None, None]:
        """Yield the entries whose keys are wanted, by the parts that `split` takes them into."""
        keys, key_object, decode = self._keys, self._key_object, self._decode_raw
        size_ms = self._parts.spec.window_size_ms
        for scan in scans:
            for stored_key, stored in scan:
                raw_key, start_ms, end_ms = split(stored_key[SEGMENT_ID_SIZE:])
                if is_wanted(raw_key, start_ms, end_ms):
                    if size_ms is not None:
                        end_ms = min(start_ms + size_ms, MAX_TIME_MS)  # the third part was the number of a duplicate
                    key, held = (key_object(raw_key), decode(stored)) if keys is None else keys.pair(raw_key, stored)
                    yield Windowed(key, start_ms, end_ms), held


class ReadForms:
    """What an overloaded method takes: a tuple of names for each form. Names that end with `_ms` are of times."""

    def __init__(self, method: str, *forms: tuple[str, ...]) -> None:
        self._method = method
        self._forms = forms
        self._times = {len(form): tuple(at for at, name in enumerate(form) if name.endswith("_ms")) for form in forms}
        """Where the times are, by how many arguments there are: no two forms are of equal length."""

    def may_begin_with(self, name: str) -> bool:
        """Return whether a form has this name first."""
        return any(form[0] == name for form in self._forms)

    def form(self, count: int, named: Iterable[str] = ()) -> tuple[str, ...] | None:
        """Return the form that `count` arguments and these named ones fit; None if none does."""
        names = {*named}
        for form in self._forms:
            if len(form) == count + len(names) and names == {*form[count:]}:
                return form
        return None

    def arguments(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in the order of the form that they fit, times in ms. Raises TypeError for no form."""
        count = len(given)
        if not named and count in self._times:
            for at in self._times[count]:
                if isinstance(given[at], timedelta):
                    break
            else:
                return given  # most reads
        form = self.form(count, named)
        if form is not None:
            found = (*given, *(named[name] for name in form[count:]))
            return tuple(
                in_milliseconds(argument) if name.endswith("_ms") else argument
                for name, argument in zip(form, found, strict=True)
            )
        forms = " or ".join(f"({', '.join(form)})" for form in self._forms)
        got = ", ".join([*("..." for _ in given), *(f"{name}=..." for name in named)])
        raise TypeError(f"{self._method} takes {forms}, got ({got})")
