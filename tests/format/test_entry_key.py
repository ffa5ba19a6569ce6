"""Entries of a key stand side by side, whatever bytes keys have."""

from hypothesis import example, given
from hypothesis import strategies as st

from statestore.format.entry_key import list_bounds, list_entry_key, list_index, map_bounds, map_entry_key, map_key_of

# Bytes that the layout uses itself, so that keys look like what stands around them.
KEYS = st.lists(st.sampled_from([0, 1, 2, 254, 255]), max_size=6).map(bytes)
INDEXES = st.integers(0, 2**64 - 1)


@given(entries=st.lists(st.tuples(KEYS, INDEXES), max_size=20))
@example(entries=[(b"", 0), (b"\x00", 0), (b"\x00" * 8, 0)])
def test_list_entries_between_a_keys_bounds_are_its_own_in_order(entries: list[tuple[bytes, int]]) -> None:
    stored = sorted({list_entry_key(*entry): entry for entry in entries}.items())
    for key in {key for key, _ in entries}:
        first, last = list_bounds(key)
        found = [entry for place, entry in stored if first <= place <= last]
        assert found == sorted({entry for entry in entries if entry[0] == key})
        assert [list_index(place) for place, _ in stored if first <= place <= last] == [index for _, index in found]


@given(entries=st.lists(st.tuples(KEYS, KEYS), max_size=20))
@example(entries=[(b"a", b""), (b"b", b""), (b"", b"a"), (b"\xff", b"\xff"), (b"\xff\xff", b"")])
def test_map_entries_between_a_keys_bounds_are_its_own_in_order(entries: list[tuple[bytes, bytes]]) -> None:
    stored = sorted({map_entry_key(*entry): entry for entry in entries}.items())
    for key in {key for key, _ in entries}:
        first, last = map_bounds(key)
        found = [entry for place, entry in stored if first <= place <= last]
        assert found == sorted({entry for entry in entries if entry[0] == key})
        assert [map_key_of(key, place) for place, _ in stored if first <= place <= last] == [k for _, k in found]
        assert last not in dict(stored)


def test_the_layout_is_fixed() -> None:
    assert list_entry_key(b"ab", 258) == b"\0\0\0\2ab\0\0\0\0\0\0\1\2"
    assert map_entry_key(b"ab", b"m") == b"\0\0\0\2ab\0m"
