"""Sessions: what becomes one, what is late, and whose headers go on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.windows import JoinWindows, SessionWindows, SlidingWindows
from statestore.errors import TopologyError
from tests.support.dsl.runs import TEXT, DslRun, joined_in, joined_when_closed_in

SESSIONS = SessionWindows.of_inactivity_gap_and_grace(5, 10)
joined, joined_when_closed = partial(joined_in, SESSIONS), partial(joined_when_closed_in, SESSIONS)


def test_a_record_makes_one_of_the_sessions_that_it_is_close_to() -> None:
    with DslRun(lambda stream: joined(stream, headers="append")) as run:
        assert run.pipe(("a", "x", 10, "1")) == ["a[10,10] x @10 1"]
        assert run.pipe(("a", "y", 20, "2"), ("b", "z", 15, "3")) == ["a[20,20] y @20 2", "b[15,15] z @15 3"]
        assert run.pipe(("a", "w", 15, "4")) == [
            "a[10,10] None @10 1 2 4",
            "a[20,20] None @20 1 2 4",
            "a[10,20] xyw @20 1 2 4",
        ]
        assert run.pipe(("a", "v", 20, "5")) == ["a[10,20] None @20 1 2 4 5", "a[10,20] xywv @20 1 2 4 5"]
        assert run.pipe(("a", "u", 26, "6")) == ["a[26,26] u @26 6"]


@pytest.mark.parametrize(
    ("policy", "traces"),
    [("latest", "3"), ("first", "1"), ("none", ""), ("merge_distinct", "1 2 3"), (lambda old, new: Headers(), "")],
)
def test_headers_are_those_of_sessions_in_order_of_time_and_then_of_the_record(policy: Any, traces: str) -> None:
    with DslRun(lambda stream: joined(stream, headers=policy)) as run:
        run.pipe(("a", "y", 20, "2"), ("a", "x", 10, "1"))
        assert run.pipe(("a", "w", 15, "3"))[-1] == f"a[10,20] xyw @20 {traces}".strip()


def test_a_session_takes_records_until_gap_and_grace_have_passed() -> None:
    def declare(stream: KStream) -> KTable:
        table = joined(stream)
        table.late_records().to("late")
        return table

    with DslRun(declare) as run:
        assert run.pipe(("b", "t", 40), ("a", "x", 25), ("a", "y", 24, "late")) == ["b[40,40] t @40", "a[25,25] x @25"]
        assert run.outputs("late") == ["a y @24 late"]
        # It would be late by itself, and belongs to a session that is not.
        assert run.pipe(("a", "z", 29), ("a", "w", 24)) == ["a[29,29] z @29", "a[29,29] None @29", "a[24,29] zw @29"]
        assert run.driver.metrics()["dropped-records-total"] == 1


def test_sessions_are_put_out_once_when_they_close(tmp_path: Path) -> None:
    with DslRun(joined_when_closed, state_dir=tmp_path) as run:
        assert run.pipe(("b", "z", 9, "0"), ("a", "x", 10, "1"), ("a", "y", 14, "2"), ("c", "v", 29, "3")) == [
            "b[9,9] z @9 0"
        ]
    with DslRun(joined_when_closed, state_dir=tmp_path) as run:
        assert run.pipe(("c", "v", 30)) == ["a[10,14] xy @14 1 2"]
        assert run.pipe(("a", "late", 13), ("d", "u", 1_000_000)) == ["c[29,30] vv @30 3"]


def test_no_session_is_lost_on_the_edge_of_its_retention() -> None:
    with DslRun(joined_when_closed) as run:
        assert run.pipe(("b", "t", 40), ("a", "x", 25), ("b", "t", 41)) == ["a[25,25] x @25"]


@pytest.mark.parametrize("grace_ms", [0, 3])
@pytest.mark.parametrize(
    "windows_of", [SessionWindows.of_inactivity_gap_and_grace, SlidingWindows.of_time_difference_and_grace]
)
def test_windows_without_a_length_hold_the_records_of_one_time(windows_of: Any, grace_ms: int) -> None:
    windows = windows_of(0, grace_ms)
    with DslRun(lambda stream: stream.group_by_key().windowed_by(windows).reduce(lambda a, b: a + b)) as run:
        assert run.pipe(("a", "x", 20), ("a", "y", 20), ("a", "z", 21)) == [
            "a[20,20] x @20",
            "a[20,20] xy @20",
            "a[21,21] z @21",
        ]
        in_time = [] if grace_ms == 0 else ["a[20,20] xyw @20"]
        assert run.pipe(("a", "w", 20)) == in_time


def test_aggregates_are_merged_with_the_initial_value_first() -> None:
    def declare(stream: KStream) -> KTable:
        by_session = stream.group_by_key().windowed_by(SESSIONS)
        return by_session.aggregate(
            lambda: "i",
            lambda key, value, aggregate: aggregate + value if value != "gone" else None,
            lambda key, one, other: f"({one}{other})",
            materialized=Materialized.with_(TEXT, TEXT),
        )

    with DslRun(declare) as run:
        assert run.pipe(("a", "x", 10), ("a", "y", 20), ("a", "z", 15))[-1] == "a[10,20] ((iix)iy)z @20"
        assert run.pipe(("a", "gone", 15)) == ["a[10,20] None @20", "a[10,20] None @20"]


def test_what_can_not_be_is_refused_when_the_program_is_built() -> None:
    short = Materialized.as_("short").with_retention(14)
    with pytest.raises(TopologyError, match="retention of 14 ms"):
        DslRun(lambda stream: joined(stream, materialized=short))
    joins = JoinWindows.of_time_difference_with_no_grace(5)
    with pytest.raises(TypeError, match="JoinWindows"):
        DslRun(lambda stream: stream.group_by_key().windowed_by(joins).count())  # type: ignore[call-overload]
