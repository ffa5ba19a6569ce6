"""Scans of windows and sessions: through the segments in the order of time, and within a segment in that of keys."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from statestore.bytestore.engines.scans import prefix_end
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.errors.state import StoreClosedError

Parsed = tuple[bytes, int, int]
"""A key taken apart: the record's key, and two numbers that depend on the kind of store."""


def scan_segments(
    inner: ByteStore,
    segments: Segments,
    times_ms: tuple[int, int],
    keys: tuple[bytes | None, bytes | None],
    parse: Callable[[bytes], Parsed],
    wanted: Callable[[Parsed], bool],
    *,
    reverse: bool,
) -> Generator[tuple[Parsed, bytes], None, None]:
    """Yield parsed key and stored value of the entries for which `wanted` holds, as of the call.

    `times_ms` says which segments to look at, first and last time inclusive; `keys` bounds the keys within each, in
    bytes and both inclusive, None = open.
    """
    return _matches(segment_scans(inner, segments, times_ms, keys, reverse=reverse), parse, wanted)


def segment_scans(
    inner: ByteStore,
    segments: Segments,
    times_ms: tuple[int, int],
    keys: tuple[bytes | None, bytes | None],
    *,
    reverse: bool,
) -> list[Iterator[Pair]]:
    """Return a scan of each segment that `scan_segments` looks at, as of the call: of more than what it yields."""
    if not inner.is_open:
        raise StoreClosedError(inner.name)  # a scan of no segment would not notice
    first_ms, last_ms = times_ms
    first = segments.id_of(max(0, first_ms))
    lower, upper = keys
    scans: list[Iterator[Pair]] = []
    for segment_id in segments.ids(max(first, segments.first_live), segments.id_of(max(0, last_ms)), reverse=reverse):
        prefix = segment_prefix(segment_id)
        # The end is inclusive, but every key is longer than a segment's id.
        end = prefix_end(prefix) if upper is None else prefix + upper
        scans.append(inner.range(prefix + (lower or b""), end, reverse=reverse))
    return scans


def _matches(
    scans: list[Iterator[Pair]], parse: Callable[[bytes], Parsed], wanted: Callable[[Parsed], bool]
) -> Generator[tuple[Parsed, bytes], None, None]:
    for scan in scans:
        for key, stored in scan:
            parsed = parse(key[SEGMENT_ID_SIZE:])
            if wanted(parsed):
                yield parsed, stored


def upper_bound(key: bytes, suffix: bytes) -> bytes:
    """Return a key that none of the keys up to `key`, each followed by at most `suffix`, is greater than.

    A shorter key, followed by its time, can sort behind a longer one that it begins: `k` and its time behind `k 00`
    and its time. So each beginning of `key` is a candidate where `suffix` is greater than what follows there.
    """
    bound = key + suffix
    for length in range(len(key)):
        if key[length] <= suffix[0] and key[:length] + suffix > bound:
            bound = key[:length] + suffix
    return bound
