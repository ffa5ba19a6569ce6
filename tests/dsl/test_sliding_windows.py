"""Sliding windows: one for each set of records that are close enough to each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.windows import SlidingWindows
from statestore.errors import TopologyError
from tests.support.dsl.runs import TEXT, DslRun, joined_in, joined_when_closed_in

WINDOWS = SlidingWindows.of_time_difference_and_grace(10, 5)
joined, joined_when_closed = partial(joined_in, WINDOWS), partial(joined_when_closed_in, WINDOWS)


def test_windows_end_with_a_record_or_begin_behind_one() -> None:
    with DslRun(lambda stream: joined(stream, headers="append")) as run:
        assert run.pipe(("a", "x", 20, "1")) == ["a[10,20] x @20 1"]
        assert run.pipe(("a", "y", 25, "2")) == ["a[21,31] y @25 2", "a[15,25] xy @25 1 2"]
        assert run.pipe(("a", "z", 22, "3")) == [
            "a[21,31] yz @25 2 3",
            "a[15,25] xyz @25 1 2 3",
            "a[12,22] xz @22 1 3",
            "a[23,33] y @25 2",
        ]
        assert run.pipe(("b", "w", 40, "4")) == ["b[30,40] w @40 4"]


def test_windows_that_would_begin_before_time_does_are_one() -> None:
    with DslRun(lambda stream: joined(stream, headers="append")) as run:
        assert run.pipe(("a", "x", 1, "1"), ("a", "y", 5, "2")) == [
            "a[0,10] x @1 1",
            "a[2,12] y @5 2",
            "a[0,10] xy @5 1 2",
        ]
        assert run.pipe(("a", "z", 3, "3")) == ["a[2,12] yz @5 2 3", "a[4,14] y @5 2", "a[0,10] xyz @5 1 2 3"]


def test_what_is_late_for_some_windows_is_counted_for_each_and_told_once_to_all_who_ask() -> None:
    def declare(stream: KStream) -> KTable:
        table = joined(stream)
        table.late_records().to("late")
        table.late_records().map_values(str.upper, value_serde=TEXT).to("late too")
        return table

    with DslRun(declare) as run:
        run.pipe(("a", "x", 20), ("b", "t", 36))
        # [14,24] has closed at 31, [21,31] has not.
        assert run.pipe(("a", "y", 24, "1"), ("a", "z", 20, "2")) == ["a[21,31] y @24 1"]
        assert run.outputs("late") == ["a y @24 1", "a z @20 2"]
        assert run.outputs("late too") == ["a Y @24 1", "a Z @20 2"]
        assert run.driver.metrics()["dropped-records-total"] == 2


def test_records_without_a_key_or_a_value_are_left_out() -> None:
    with DslRun(joined) as run:
        assert run.pipe((None, "x", 20), ("a", None, 20)) == []
        assert run.driver.metrics()["dropped-records-total"] == 2


def test_what_an_aggregator_changes_is_not_changed_in_other_windows() -> None:
    from statestore import Serdes

    def declare(stream: KStream) -> KTable:
        def add(key: str, value: str, values: list[str]) -> list[str]:
            values.append(value)
            return values

        lists = Materialized.with_(TEXT, Serdes.json())
        return stream.group_by_key().windowed_by(WINDOWS).aggregate(list, add, materialized=lists)

    with DslRun(declare) as run:
        run.pipe(("a", "y", 25))
        assert run.pipe(("a", "x", 20)) == ["a[15,25] ['y', 'x'] @25", "a[10,20] ['x'] @20", "a[21,31] ['y'] @25"]


def test_windows_are_put_out_once_when_they_close(tmp_path: Path) -> None:
    with DslRun(joined_when_closed, state_dir=tmp_path) as run:
        assert run.pipe(("b", "w", 20, "0"), ("a", "x", 20, "1"), ("a", "y", 25, "2"), ("c", "t", 25)) == []
        assert run.pipe(("c", "t", 26, "3")) == ["a[10,20] x @20 1", "b[10,20] w @20 0"]
    with DslRun(joined_when_closed, state_dir=tmp_path) as run:
        assert run.pipe(("c", "t", 31, "4")) == ["a[15,25] xy @25 1 2", "c[15,25] t @25"]
        assert run.pipe(("d", "u", 1_000_000))[:2] == ["c[16,26] tt @26 3", "a[21,31] y @25 2"]


def test_retention_has_to_hold_two_differences_and_the_grace() -> None:
    with pytest.raises(TopologyError, match="retention of 24 ms"):
        DslRun(lambda stream: joined(stream, materialized=Materialized.as_("short").with_retention(24)))
