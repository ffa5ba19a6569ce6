"""Where a sample is read: spread over the keys, whatever they are made of."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from statestore.bytestore.engines.memory import MemoryByteStore
from upgrade_tools.serve.sampling import spread_pairs

ENTRIES = 20_000
AT_MOST = 500


@pytest.mark.parametrize(
    "key",
    [
        lambda number: b"customer-%012d" % number,
        lambda number: number.to_bytes(8, "big"),
        lambda number: random.Random(number).randbytes(12),
        lambda number: b"%x" % random.Random(number).getrandbits(64),
    ],
    ids=["digits", "numbers", "bytes", "hex"],
)
def test_a_sample_is_spread_over_the_keys(key: Callable[[int], bytes]) -> None:
    store = MemoryByteStore("sampled")
    keys = sorted({key(number) for number in range(ENTRIES)})
    store.write((each, b"value") for each in keys)
    found = [pair[0] for pair in spread_pairs(store, AT_MOST)]
    assert found == sorted(set(found)), "in order, and each once"
    assert 0 < len(found) <= AT_MOST
    places = [keys.index(each) for each in found[:: len(found) // 10]]
    assert places[0] == 0
    assert {place * 4 // len(keys) for place in places} == {0, 1, 2, 3}
    assert len(found) > AT_MOST // 3


def test_an_empty_store_has_no_sample() -> None:
    assert [*spread_pairs(MemoryByteStore("empty"), AT_MOST)] == []


def test_one_key_is_found_once() -> None:
    store = MemoryByteStore("one")
    store.put(b"only", b"value")
    assert [*spread_pairs(store, AT_MOST)] == [(b"only", b"value")]
