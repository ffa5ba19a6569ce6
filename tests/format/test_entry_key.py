"""Entries of a key stand side by side, whatever bytes keys have."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.format.keys.entry_key import (
    list_bounds,
    list_entry_key,
    list_index,
    map_bounds,
    map_entry_key,
    map_entry_keys,
    map_key_of,
)

# Bytes that the layout uses itself, so that keys look like what stands around them.
KEYS = st.lists(st.sampled_from([0, 1, 2, 254, 255]), max_size=6).map(bytes)
INDEXES = st.integers(0, 2**64 - 1)


def check_entries_stand_together(
    entries: list[tuple[bytes, Any]],
    place_of: Callable[[bytes, Any], bytes],
    bounds_of: Callable[[bytes], tuple[bytes, bytes]],
    part_of: Callable[[bytes, bytes], Any],
) -> None:
    """Check that what stands between a key's bounds is what it has, in order, and each the part of it that it is."""
    stored = sorted({place_of(*entry): entry for entry in entries}.items())
    for key in {key for key, _ in entries}:
        first, last = bounds_of(key)
        found = [(place, entry) for place, entry in stored if first <= place <= last]
        assert [entry for _, entry in found] == sorted({entry for entry in entries if entry[0] == key})
        assert all(part_of(key, place) == part for place, (_, part) in found)


@given(entries=st.lists(st.tuples(KEYS, INDEXES), max_size=20))
@example(entries=[(b"", 0), (b"\x00", 0), (b"\x00" * 8, 0)])
def test_list_entries_between_a_keys_bounds_are_its_own_in_order(entries: list[tuple[bytes, int]]) -> None:
    check_entries_stand_together(entries, list_entry_key, list_bounds, lambda _, place: list_index(place))


@given(entries=st.lists(st.tuples(KEYS, KEYS), max_size=20))
@example(entries=[(b"a", b""), (b"b", b""), (b"", b"a"), (b"\xff", b"\xff"), (b"\xff\xff", b"")])
def test_map_entries_between_a_keys_bounds_are_its_own_in_order(entries: list[tuple[bytes, bytes]]) -> None:
    check_entries_stand_together(entries, map_entry_key, map_bounds, map_key_of)
    keys, map_keys = (pa.array([entry[part] for entry in entries], pa.binary()) for part in (0, 1))
    assert map_entry_keys(keys, map_keys).to_pylist() == [map_entry_key(*entry) for entry in entries]
    places = {map_entry_key(*entry) for entry in entries}
    assert not places & {map_bounds(key)[1] for key, _ in entries}


def test_the_layout_is_fixed() -> None:
    assert list_entry_key(b"ab", 258) == b"\0\0\0\2ab\0\0\0\0\0\0\1\2"
    assert map_entry_key(b"ab", b"m") == b"\0\0\0\2ab\0m"
