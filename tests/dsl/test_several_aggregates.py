"""Several aggregates at once are what SQL would make of the records of each key and window, nulls left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Serde, Serdes
from statestore.dsl.aggregates.aggregable_stream import ReducibleStream
from statestore.dsl.aggregates.aggregate import Aggregate
from statestore.dsl.materialized import Materialized
from statestore.dsl.row_serde import row_serde
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windowed_serdes import session_windowed_serde, time_windowed_serde
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.errors import InputError, ProcessorError, TopologyError
from statestore.errors.run import AggregatesError
from statestore.stores.iterator import Windowed
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.documentation import ROOT

TEXT, JSON = Serdes.string(), Serdes.json()
COLUMNS = [("n", pa.int32()), ("x", pa.float64()), ("d", pa.decimal128(10, 2)), ("t", pa.string()), ("b", pa.binary())]
ROWS = row_serde(pa.struct(COLUMNS))
NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
SIZE, GAP, NEVER_LATE = 10, 5, 10_000
LIMIT = 3
FUNCTIONS = " ".join(name for name, made in vars(Aggregate).items() if isinstance(made, staticmethod))
AGGREGATES = {
    "records": Aggregate.count(),
    "numbers": Aggregate.count("n"),
    "total": Aggregate.sum("n"),
    "price": Aggregate.sum("d"),
    "least": Aggregate.min("n"),
    "largest": Aggregate.max("x"),
    "low": Aggregate.min("t"),
    "mean": Aggregate.mean("x"),
    "doubled": Aggregate.mean(lambda row: None if row["n"] is None else 2 * row["n"]),
    "first": Aggregate.first("t"),
    "last": Aggregate.last("t"),
    "all": Aggregate.collect("t", LIMIT),
    "top": Aggregate.top("x", LIMIT),
}
BY_ARRIVAL = {"first", "last", "all", "top"}
"""What differs if records come in another order."""
QUARTERS = st.integers(-40, 40).map(lambda n: n / 4)
RECORDS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "x": st.none() | QUARTERS | st.sampled_from(list(NUMBERS)),
        "d": st.none() | st.integers(-(10**7), 10**7).map(lambda cents: cents / 100),
        "t": st.none() | st.text(max_size=2) | st.just("NaN"),
    },
    optional={"b": st.none()},
)
KEYED = st.lists(st.tuples(st.sampled_from("ab"), RECORDS, st.integers(0, 40)), min_size=1, max_size=12)


def grouped(windows: Any, serde: Serde[Any] = ROWS) -> tuple[StreamsBuilder, ReducibleStream[Any]]:
    builder = StreamsBuilder()
    by_key = builder.stream("in", key_serde=TEXT, value_serde=serde).group_by_key()
    return builder, by_key if windows is None else by_key.windowed_by(windows)


def results(windows: Any, records: list[Any], read_key: Serde[Any]) -> dict[Any, Any]:
    builder, stream = grouped(windows)
    stream.agg(AGGREGATES).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=JSON)
        for key, value, time_ms in records:
            source.pipe_input(key, value, timestamp_ms=time_ms)
        out = driver.create_output_topic("out", key_serde=read_key, value_serde=JSON).read_records_to_list()
    return {key: value for key, value in {each.key: each.value for each in out}.items() if value is not None}


def expected(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What SQL makes of rows, computed once over all of them."""
    given = {name: [row[name] for row in rows if row[name] is not None] for name in "nxdt"}
    x = [NUMBERS.get(value, value) for value in given["x"]]
    comparable = [value for value in x if not isnan(value)] or x
    ranked = sorted(given["x"], key=lambda v: -inf if v == "NaN" else NUMBERS.get(v, v), reverse=True)
    return {
        "records": len(rows),
        "numbers": len(given["n"]),
        "total": sum(given["n"]) if given["n"] else None,
        "price": float(sum(Decimal(str(value)) for value in given["d"])) if given["d"] else None,
        "least": min(given["n"], default=None),
        "largest": text_of(max(comparable, default=None)),
        "low": min(given["t"], default=None),
        "mean": text_of(sum(x) / len(x)) if x else None,
        "doubled": 2 * sum(given["n"]) / len(given["n"]) if given["n"] else None,
        "first": given["t"][0] if given["t"] else None,
        "last": given["t"][-1] if given["t"] else None,
        "all": given["t"][:LIMIT],
        "top": ranked[:LIMIT],
    }


def text_of(number: float | None) -> Any:
    return next((text for text, value in NUMBERS.items() if str(value) == str(number)), number)


@dataclass(frozen=True)
class Case:
    """Windows, and which records are in one of them."""

    windows: Any
    read_key: Serde[Any]
    holds: Callable[[Windowed, int], bool] = lambda window, time_ms: window.start_ms <= time_ms < window.end_ms
    keeps_order: bool = True


def within(window: Windowed, time_ms: int) -> bool:
    return window.start_ms <= time_ms <= window.end_ms


CASES = {
    "tumbling": Case(TimeWindows.of_size_and_grace(SIZE, NEVER_LATE), time_windowed_serde(TEXT, SIZE)),
    "hopping": Case(TimeWindows.of_size_and_grace(SIZE, NEVER_LATE).advance_by(4), time_windowed_serde(TEXT, SIZE)),
    "sliding": Case(
        SlidingWindows.of_time_difference_and_grace(SIZE, NEVER_LATE), time_windowed_serde(TEXT, SIZE), within, False
    ),
    "sessions": Case(
        SessionWindows.of_inactivity_gap_and_grace(GAP, NEVER_LATE), session_windowed_serde(TEXT), within, False
    ),
}


@settings(max_examples=40, deadline=None)
@given(KEYED)
def test_aggregates_of_keys_are_those_of_their_records(records: list[Any]) -> None:
    found = results(None, records, TEXT)
    keys = {key for key, _, _ in records}
    assert found == {key: expected([row for each, row, _ in records if each == key]) for key in keys}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40, deadline=None)
@given(KEYED)
def test_aggregates_of_windows_are_those_of_the_records_in_them(name: str, records: list[Any]) -> None:
    case = CASES[name]
    found = results(case.windows, records, case.read_key)
    assert {(window.key, time_ms) for window in found for _, _, time_ms in records if case.holds(window, time_ms)} >= {
        (key, time_ms) for key, _, time_ms in records
    }
    skipped = set() if case.keeps_order or records == sorted(records, key=lambda each: each[2]) else BY_ARRIVAL
    for window, made in found.items():
        held = [row for key, row, time_ms in records if key == window.key and case.holds(window, time_ms)]
        wanted = expected(held)
        assert {k: v for k, v in made.items() if k not in skipped} == {
            k: v for k, v in wanted.items() if k not in skipped
        }


def test_sessions_that_become_one_are_taken_in_order_of_time() -> None:
    case = CASES["sessions"]
    given = ((1, 8), (2, 0), (3, 4))
    records = [("a", {"n": n, "x": float(n), "d": None, "t": str(n)}, time_ms) for n, time_ms in given]
    made = results(case.windows, records, case.read_key)[Windowed("a", 0, 8)]
    assert (made["all"], made["first"], made["last"]) == (["2", "1", "3"], "2", "3")


def piped(
    stream_of: Callable[[ReducibleStream[Any]], Any], values: list[Any], serde: Serde[Any], **options: Any
) -> Any:
    """Return what came out of records of one key."""
    builder, stream = grouped(None, serde)
    stream_of(stream).to_stream().to("out")
    with TopologyTestDriver(builder.build(), **options) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=serde)
        for value in values:
            source.pipe_input("a", value, timestamp_ms=0)
        out = driver.create_output_topic("out", key_serde=TEXT, value_serde=JSON)
        return [record.value for record in out.read_records_to_list()]


def test_what_is_kept_is_an_object_of_json_in_the_store_of_kafkas_aggregate() -> None:
    builder, stream = grouped(None, JSON)
    stream.agg(
        {"total": Aggregate.sum("n"), "mean": Aggregate.mean("n"), "last": Aggregate.last("t")}, headers="append"
    )
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=JSON)
        source.pipe_micro_batch(
            [TestRecord("a", {"n": n}, time, [("trace", b"%d" % n)]) for n, time in ((5, 3), (6, 2))]
        )
        assert list(driver.get_all_state_stores()) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000001"]
        kept = driver.get_timestamped_key_value_store_with_headers("KSTREAM-AGGREGATE-STATE-STORE-0000000001")
        held = kept.get("a")
        assert json.dumps(held.value) == '{"total": 11, "mean": [11, 2], "last": null}'
        assert (held.timestamp_ms, [header.value for header in held.headers]) == (3, [b"5", b"6"])


def test_an_aggregate_that_was_not_there_before_begins_when_it_is_added(tmp_path: Path) -> None:
    kept = Materialized.as_("kept").with_value_serde(JSON)
    total, mean = {"total": Aggregate.sum("n")}, {"mean": Aggregate.mean("n"), "n": Aggregate.collect("n", 2)}
    one = piped(lambda s: s.agg(total, materialized=kept), [{"n": 1}], JSON, state_dir=tmp_path)
    two = piped(lambda s: s.agg({**total, **mean}, materialized=kept), [{"n": 2}], JSON, state_dir=tmp_path)
    assert one + two == [{"total": 1}, {"total": 3, "mean": 2.0, "n": [2]}]


def test_records_that_are_late_are_known_also_where_results_are_computed_of_what_is_kept() -> None:
    builder, stream = grouped(TimeWindows.of_size_with_no_grace(SIZE))
    table = stream.agg({"mean": Aggregate.mean("n")})
    table.filter(lambda key, value: True).late_records().to("late")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=JSON)
        for time_ms in (0, SIZE, 1):
            source.pipe_input("a", {"n": 1}, timestamp_ms=time_ms)
        late = driver.create_output_topic("late", key_serde=TEXT, value_serde=JSON).read_records_to_list()
        assert [(record.value, record.timestamp_ms) for record in late] == [({"n": 1}, 1)]


@pytest.mark.parametrize(
    ("aggregate", "values", "said"),
    [
        (Aggregate.sum("n"), [{"n": 2**63 - 1}, {"n": 1}], "64 bits; it came to int of 1 bits"),
        (Aggregate.sum("d"), [{"d": 1e13 - 1}, {"d": 1}], "decimal(15,2); it came to int of 1 bits"),
        (Aggregate.sum("t"), [{"t": "5"}], "it needs a number, not str; it came to str of 1 characters"),
        (Aggregate.mean("b"), [{"b": True}], "it needs a number, not bool; it came to bool"),
        (Aggregate.max("n"), [{"n": 1}, {"n": "x"}], "not supported between instances of 'str' and 'int'"),
        (Aggregate.sum("n"), [5], "it reads column 'n', but the value is int, not a dict; it came to int of 3 bits"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_comes(aggregate: Aggregate, values: list[Any], said: str) -> None:
    serde = ROWS if aggregate.column == "d" else JSON
    with pytest.raises(ProcessorError, match="aggregate 'made': .*" + re.escape(said)) as raised:
        piped(lambda stream: stream.agg({"made": aggregate}), values, serde)
    assert isinstance(raised.value.__cause__, InputError)


def test_functions_make_columns_of_other_values() -> None:
    made = piped(
        lambda stream: stream.agg(
            {"total": Aggregate.sum(abs), "even": Aggregate.count(lambda n: n if n % 2 else None)}
        ),
        [-3, 4],
        Serdes.int64(),
    )
    assert made == [{"total": 3, "even": 1}, {"total": 7, "even": 1}]


def test_all_that_is_wrong_is_one_error() -> None:
    _, stream = grouped(None)
    wrong: dict[Any, Any] = {
        "a": Aggregate.sum("t"),
        "b": Aggregate.max("b"),
        "c": Aggregate.count("nobody"),
        "d": 5,
        "": Aggregate.count(),
        "e": Aggregate.first(7),  # type: ignore[arg-type]
        "fine": Aggregate.top("b", 1, by=len),
    }
    with pytest.raises(AggregatesError) as raised:
        stream.agg(wrong)
    assert isinstance(raised.value, TopologyError)
    assert raised.value.problems == [
        "'a': sum() takes numbers (also decimals of up to 15 digits), but column 't' is string: cast it",
        "'b': max() takes numbers (also decimals of up to 15 digits), text, booleans, dates and timestamps, but "
        "column 'b' is binary: cast it",
        "'c': there is no column 'nobody' in the values; there are n, x, d, t, b",
        "'d' is 5, not an Aggregate such as Aggregate.sum(...)",
        "'' is not a column name",
        "'e': 7 is neither a column name nor a function",
    ]
    with pytest.raises(AggregatesError, match=re.escape("not {}")):
        stream.agg({})
    with pytest.raises(AggregatesError, match=r"values are int64 and have no column 'n'.*value=\['n', ...\]"):
        grouped(None, Serdes.int64())[1].agg({"a": Aggregate.sum("n")})
    with pytest.raises(ValueError, match="limit"):
        Aggregate.collect("n", 0)
    with pytest.raises(ValueError, match="limit"):
        Aggregate.top("n", 0)


def test_every_aggregate_is_drawn_and_on_the_page() -> None:
    assert {each.rule.function for each in AGGREGATES.values()} == {*FUNCTIONS.split()}
    page = (ROOT / "docs/dsl/aggregates.md").read_text(encoding="utf-8")
    assert [name for name in FUNCTIONS.split() if f"`{name}(" not in page] == []


@pytest.mark.parametrize(
    ("type_", "functions"),
    [
        (pa.int8(), FUNCTIONS),
        (pa.decimal128(15, 3), FUNCTIONS),
        (pa.decimal128(16, 3), "count"),
        (pa.timestamp("us", "UTC"), "count min max first last collect top"),
        (pa.bool_(), "count min max first last collect top"),
        (pa.binary(), "count first last collect"),
        (pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.date32())))]), "count first last collect"),
        (pa.struct([("a", pa.decimal128(16, 3))]), "count"),
        (pa.map_(pa.int32(), pa.int32()), "count"),
        (pa.null(), "count"),
    ],
    ids=str,
)
def test_what_a_column_can_be_aggregated_to(type_: pa.DataType, functions: str) -> None:
    limited = {"collect": partial(Aggregate.collect, limit=2), "top": partial(Aggregate.top, limit=2)}
    taken = []
    for name in FUNCTIONS.split():
        aggregate = limited.get(name) or getattr(Aggregate, name)
        _, stream = grouped(None, row_serde(pa.struct([("c", type_)])))
        try:
            stream.agg({"made": aggregate("c")})
        except AggregatesError:
            continue
        taken.append(name)
    assert taken == functions.split()
