"""Compaction by a key in a header: the last record of each counts, null values and expired records go."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.middleware.lifetime.compaction import COMPACTION_HEADER, compacted, compacted_columns
from statestore.recovery.commit.changelog import ChangelogRecord
from tests.support.passed_records import arrived, contents, in_columns, produced

NOW_MS = 1_000
KEYS = st.none() | st.sampled_from([b"a", b"b"])
EXPIRIES = st.none() | st.sampled_from([expiry_value(999), expiry_value(1_000), b"1001", b"no time", b""])
NAMED = st.tuples(st.just(COMPACTION_HEADER), KEYS) | st.tuples(st.just(EXPIRY_HEADER), EXPIRIES)
ROWS = st.lists(st.tuples(KEYS, st.none() | st.just(b"v"), st.lists(NAMED, max_size=3)), max_size=8)


def record(key: bytes | None, value: bytes | None, **headers: bytes | None) -> Any:
    return arrived(produced(key, value, [(name.replace("_", "-"), held) for name, held in headers.items()]))


def test_b16_records_with_one_compaction_key_replace_each_other() -> None:
    log = [
        record(b"k1", b"1", compaction_key=b"order-7"),
        record(b"order-7", b"2"),  # what has no header is compacted by its key
        record(b"k2", b"3", compaction_key=b"order-8"),
        record(b"k3", b"4", compaction_key=b"order-7"),
        record(b"k3", b"5", compaction_key=None),
    ]
    assert [left.value for left in compacted(log, now_ms=0)] == [b"3", b"4", b"5"]
    assert [left.value for left in compacted(log, now_ms=0, header="other")] == [b"1", b"2", b"3", b"5"]


def test_b16_a_null_value_ends_what_it_replaces() -> None:
    log = [record(b"k1", b"1", compaction_key=b"x"), record(b"k2", None, compaction_key=b"x"), record(b"k3", b"2")]
    assert [left.key for left in compacted(log, now_ms=0)] == [b"k3"]
    assert [left.key for left in compacted(log, now_ms=0, keep_tombstones=True)] == [b"k2", b"k3"]


def test_b16_what_expired_is_gone_and_brings_nothing_back() -> None:
    log = [record(b"k", b"old"), record(b"k", b"new", expires_at=b"1000"), record(b"l", None, expires_at=b"1001")]
    assert [left.value for left in compacted(log, now_ms=999)] == [b"new"]
    assert [left.value for left in compacted(log, now_ms=1_000)] == []
    assert [left.value for left in compacted(log, now_ms=1_000, expiry_header=None)] == [b"new"]
    kept = [len(compacted(log, now_ms=now_ms, keep_tombstones=True)) for now_ms in (999, 1_000, 1_001)]
    assert kept == [2, 1, 0], "a tombstone can expire, too"


def test_b16_records_without_any_key_stay() -> None:
    assert len(compacted([record(None, b"1"), record(None, b"1")], now_ms=0)) == 2


def test_b16_a_changelog_is_compacted() -> None:
    headers = encode_headers([(COMPACTION_HEADER, b"x")])
    log = [ChangelogRecord(b"a", b"1", 0, headers), ChangelogRecord(b"b", b"2", 0, headers)]
    before = parse_count()
    assert compacted(iter([*log, ChangelogRecord(b"c", b"3", 0, b"")]), now_ms=0) == [log[1], (b"c", b"3", 0, b"")]
    assert parse_count() == before + 2, "headers that have no such name are not parsed"


@given(ROWS, st.booleans())
def test_b16_columns_are_compacted_as_records(rows: list[Any], keep_tombstones: bool) -> None:
    records = [arrived(produced(key, value, headers)) for key, value, headers in rows]
    in_one = compacted_columns(in_columns(records), now_ms=NOW_MS, keep_tombstones=keep_tombstones)
    assert contents(in_one) == contents(compacted(records, now_ms=NOW_MS, keep_tombstones=keep_tombstones))


@given(ROWS)
def test_b16_compaction_is_what_a_table_holds(rows: list[Any]) -> None:
    table: dict[Any, Any] = {}
    for number, (key, value, headers) in enumerate(rows):
        places = [held for name, held in headers if name == COMPACTION_HEADER][-1:]
        place = next((held for held in (*places, key) if held is not None), number)
        table.pop(place, None)
        table[place] = (key, value, headers)
    left = compacted([arrived(produced(*row)) for row in rows], now_ms=0, expiry_header=None)
    assert contents(left) == [row for row in table.values() if row[1] is not None]
    assert contents(compacted(left, now_ms=0, expiry_header=None)) == contents(left), "again changes nothing"


def test_b16_what_can_t_be_read_is_an_error() -> None:
    malformed = b"\x02" + bytes([2 * len(COMPACTION_HEADER)]) + COMPACTION_HEADER.encode()
    with pytest.raises(FormatError):
        compacted([ChangelogRecord(b"a", b"1", 0, malformed)], now_ms=0)
    with pytest.raises(FormatError):
        compacted_columns(in_columns([produced()]).with_columns(headers=pa.array([malformed])), now_ms=0)
    with pytest.raises(TypeError, match="keys of bytes, not of int64"):
        compacted_columns(in_columns([produced()]).with_columns(key=pa.array([1])), now_ms=0)
