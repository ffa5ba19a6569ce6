"""What two states are compared by, without holding either."""

from __future__ import annotations

import pytest

from statestore.errors.new_state import StateCheckError
from statestore.recovery.making.logical_writes import LogicalWrite, Tally

WRITES = [LogicalWrite(b"a", b"1", None), LogicalWrite(b"b", b"", 5), LogicalWrite(b"b", None, 6)]


def tally(*writes: LogicalWrite) -> Tally:
    made = Tally()
    made.add(writes)
    return made


def test_it_knows_what_is_there_and_not_in_what_order() -> None:
    assert tally(*WRITES) == tally(*WRITES[::-1])
    assert tally(WRITES[0]) != tally(WRITES[0], WRITES[0])
    assert tally(WRITES[1]) != tally(WRITES[1]._replace(stored=None))
    assert tally(WRITES[1]) != tally(WRITES[1]._replace(timestamp_ms=6))
    assert tally(LogicalWrite(b"ab", b"c", None)) != tally(LogicalWrite(b"a", b"bc", None))
    assert tally() != tally(LogicalWrite(b"", b"", None))


def test_it_does_not_matter_in_how_many_chunks() -> None:
    chunks = Tally()
    assert [chunks.add(WRITES[:2]), chunks.add(()), chunks.add(WRITES[2:])] == [3, 0, 1]
    assert chunks == tally(*WRITES)
    assert (chunks.entries, chunks.size_bytes) == (3, 4)


def test_entries_that_are_there_twice_do_not_cancel_each_other() -> None:
    """As they would if checksums were combined by exclusive or."""
    first, second = LogicalWrite(b"x", b"1", None), LogicalWrite(b"y", b"2", None)
    assert tally(first, first) != tally(second, second)


def test_a_difference_names_store_and_shard_and_both_sides() -> None:
    expected, found = tally(*WRITES), tally(*WRITES[:2])
    expected.require(tally(*WRITES), "totals", 3)
    with pytest.raises(StateCheckError) as raised:
        expected.require(found, "totals", 3)
    assert (raised.value.store, raised.value.shard) == ("totals", 3)
    assert (raised.value.expected, raised.value.found) == (str(expected), str(found))
    assert str(found).startswith("2 entries with the checksum ")


def test_it_is_no_key_of_a_dict() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tally())
