"""The check of what a peer puts out takes what is right, in any order of keys, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.peers.output_check import ExpectedOutput, OutputCheck
from benchmarks.peers.workload_topic import CHUNK_RECORDS, InputRecord, input_records

Out = list[list[Any]]
IN = [
    InputRecord(b"a", b"1", 1, [("name", b"x")]),
    InputRecord(b"b", b"2", 2, [("name", b"y")]),
    InputRecord(b"a", b"3", 3, []),
    InputRecord(b"a", b"4", 4, [("name", b"z"), ("name", None)]),
]


def right() -> Out:
    seen: Counter[bytes] = Counter()
    out: Out = []
    for record in IN:
        seen[record.key] += 1
        out.append([record.key, seen[record.key].to_bytes(8, "big") + record.value, list(record.headers)])
    return out


def problems(out: Out) -> list[str]:
    expected = ExpectedOutput()
    assert list(expected.folding(IN)) == IN
    check = OutputCheck(expected)
    for key, value, headers in out:
        check.add(key, value, headers)
    return check.problems()


def counted(count: int, value: bytes) -> bytes:
    return count.to_bytes(8, "big") + value


def replace(number: int, field: int, by: Any) -> Callable[[Out], None]:
    def change(out: Out) -> None:
        out[number][field] = by

    return change


def test_what_is_right_has_no_problems() -> None:
    assert problems(right()) == []


def test_keys_may_come_in_any_order() -> None:
    assert problems(sorted(right(), key=lambda record: record[0], reverse=True)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: out.pop(1), "3 records, not 4"),
        (lambda out: out.append(out[0]), "5 records, not 4"),
        (replace(0, 1, counted(2, b"1")), "counts do not go from 1"),
        (replace(0, 1, counted(0, b"1")), "counts do not go from 1"),
        (replace(3, 1, counted(1 << 63, b"4")), "another last count"),
        (replace(3, 1, counted(3, b"5")), "another last value"),
        (replace(3, 2, [("name", b"z")]), "another last headers"),
        (replace(1, 0, b"c"), "keys that never went in, such as b'c'"),
        (replace(1, 1, b"2"), "1 records without a key or a count"),
        (replace(1, 0, None), "1 records without a key or a count"),
    ],
    ids=["lost", "twice", "twice a count", "count of none", "huge count", "value", "headers", "key", "short", "no key"],
)
def test_each_thing_wrong_is_said(change: Callable[[Out], object], said: str) -> None:
    out = right()
    change(out)
    assert any(said in problem for problem in problems(out)), problems(out)


def test_fewer_records_are_the_first_of_more() -> None:
    more = list(input_records(CHUNK_RECORDS + 3))
    fewer = list(input_records(5))
    assert len(more) == CHUNK_RECORDS + 3
    assert fewer == more[:5]
    assert fewer == list(input_records(5))
    assert [record.timestamp_ms - more[0].timestamp_ms for record in more[-2:]] == [
        CHUNK_RECORDS + 1,
        CHUNK_RECORDS + 2,
    ]
    assert {(len(record.key), len(record.value), len(record.headers)) for record in more} == {(16, 100, 3)}
    assert len({record.key for record in more}) > CHUNK_RECORDS / 2
