"""A scan of a prefix is a range with an end: it sees all keys that begin with the prefix, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.engines.scans import pairs_with_prefix, prefix_end

# Few different bytes, so that keys begin with prefixes and stand beside their ends.
KEYS = st.lists(st.sampled_from([0x00, 0x6B, 0x6C, 0xFE, 0xFF]), max_size=4).map(bytes)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        (b"", None),
        (b"k", b"l"),
        (b"k\x00", b"k\x01"),
        (b"k\xff", b"l"),
        (b"\x00\xff\xff", b"\x01"),
        (b"\xfe\xff", b"\xff"),
        (b"\xff", None),
        (b"\xff\xff", None),
    ],
)
def test_the_end_of_a_prefix_is_the_least_key_behind_all_that_begin_with_it(prefix: bytes, end: bytes | None) -> None:
    assert prefix_end(prefix) == end


@given(prefix=KEYS, key=KEYS)
def test_a_key_begins_with_a_prefix_exactly_if_it_stands_from_it_up_to_its_end(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)
    assert key.startswith(prefix) == (key >= prefix and (end is None or key < end))


@given(prefix=KEYS, start=st.none() | KEYS, keys=st.lists(KEYS))
def test_pairs_with_a_prefix_are_found_from_a_start_on(prefix: bytes, start: bytes | None, keys: list[bytes]) -> None:
    store = MemoryByteStore("store")
    store.write([(key, key) for key in keys])
    wanted = sorted(key for key in set(keys) if key.startswith(prefix) and (start is None or key >= prefix + start))
    assert [key for key, _ in pairs_with_prefix(store, prefix, start)] == wanted


def test_a_scan_of_a_prefix_is_as_of_the_call() -> None:
    store = MemoryByteStore("store")
    store.put(b"k", b"before")
    scan = pairs_with_prefix(store, b"k")
    store.put(b"k", b"after")
    assert list(scan) == [(b"k", b"before")]
