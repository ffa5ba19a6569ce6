"""Processors that are handed a key's rows as DataFrames, through tasks: rows, outputs, states, errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from customer_totals import customer_totals_topology
from statestore import ExpiredTimer, Headers, KeyContext, Processor, Record, Serdes, StatefulProcessorHandle
from statestore.connect import ConnectIngest
from statestore.errors import InputError, ProcessorError
from statestore.errors.run import OutputFrameError, StateHandleError
from statestore.format.records.header_bytes import encode_headers
from statestore.operators import per_key
from statestore.spark import HeaderStatefulProcessor
from statestore.testing import TopologyTestDriver
from tests.support.spark.per_key_processors import Doing, headers, record, run, topology_of, values
from tests.support.spark.task_batches import TaskBatches


def test_rows_are_handed_over_by_key_in_order(tmp_path: Path) -> None:
    calls: list[tuple[str, pd.DataFrame]] = []

    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        assert context.record_metadata == ("in", 3, 12 if key == "b" else 11)
        calls.extend((key, frame) for frame in rows)
        return iter(())

    batches = TaskBatches(tmp_path, topology_of(Doing(rows)))
    batches.run(record("b", 1, 10, 7), record("a", None, 11, 8, b"2"), record("b", {"x": 1}, 12, 6, b"3"))
    (first, of_b), (second, of_a) = calls
    assert (first, second) == ("b", "a")
    assert list(of_b.columns) == ["key", "value", "timestamp", "topic", "partition", "offset", "headers"]
    assert of_b["value"].tolist() == [1, {"x": 1}]
    assert of_b["key"].tolist() == ["b", "b"]
    assert of_b["timestamp"].tolist() == [pd.Timestamp(7, unit="ms"), pd.Timestamp(6, unit="ms")]
    assert (of_b["topic"].tolist(), of_b["partition"].tolist(), of_b["offset"].tolist()) == (
        ["in"] * 2,
        [3] * 2,
        [10, 12],
    )
    assert of_b["headers"].tolist() == [Headers([("trace", b"1")]), Headers([("trace", b"3")])]
    assert of_a["value"].tolist() == [None]


def test_headers_of_rows_are_read_by_the_converter_of_their_topic() -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        for frame in rows:
            read = [
                [header.value for header in context.typed_headers(each, topic)]
                for each, topic in zip(frame["headers"], frame["topic"], strict=True)
            ]
            yield pd.DataFrame({"value": [[f"{type(one).__name__} {one}" for one in each] for each in read]})

    ingest = ConnectIngest(topics={"text": "StringConverter"})
    with TopologyTestDriver(topology_of(Doing(rows)), interceptors=ingest) as driver:
        out = driver.create_output_topic("out", key_serde=Serdes.string(), value_serde=Serdes.json())
        for topic in ("in", "text"):
            piped = driver.create_input_topic(topic, key_serde=Serdes.string(), value_serde=Serdes.json())
            piped.pipe_input("a", 1, headers=Headers([("n", b"7"), ("none", None)]))
        assert out.read_values_to_list() == [["Int8 7", "NoneType None"], ["str 7", "NoneType None"]]


def test_integers_stay_integers_beside_nulls(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        for frame in rows:
            yield frame[["value", "headers"]]

    outputs = run(tmp_path, Doing(rows), record("a", 1), record("a", None, trace=b"2"), record("b", 2))
    assert [(output[3], output[4]) for output in outputs] == [
        (b"1", headers(b"1")),
        (None, headers(b"2")),
        (b"2", headers(b"1")),
    ]


def test_what_is_not_yielded_is_that_of_the_last_row(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        yield pd.DataFrame({"value": [1, 2]})

    outputs = run(tmp_path, Doing(rows), record("a", 0, 1, 5), record("a", 0, 2, 4, b"2"))
    assert outputs == [("out", 4, b"a", b"1", headers(b"2")), ("out", 4, b"a", b"2", headers(b"2"))]


def test_what_is_yielded_goes_out(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        yield pd.DataFrame(
            {
                "key": ["x", None, "z", "n"],
                "value": [1.5, None, "v", float("nan") and 3],
                "timestamp": [pd.Timestamp(7, unit="ms"), None, pd.Timestamp(8, unit="ms"), pd.NaT],
                "headers": [[("h", None)], None, Headers([("i", b"")]), []],
                "topic": ["other", None, float("nan"), ""],
            }
        )
        yield pd.DataFrame({"value": [1], "timestamp": [9]})
        yield pd.DataFrame({"value": [2], "timestamp": pd.to_datetime(["1970-01-01T01:00:00.010+01:00"])})

    outputs = run(tmp_path, Doing(rows), record("a", 0))
    assert outputs == [
        ("other", 7, b"x", b"1.5", encode_headers([("h", None)])),
        ("out", 5, None, None, headers(b"1")),
        ("out", 8, b"z", b'"v"', encode_headers([("i", b"")])),
        ("out", 5, b"n", b"3", b""),
        ("out", 9, b"a", b"1", headers(b"1")),
        ("out", 10, b"a", b"2", headers(b"1")),
    ]


def test_rows_come_in_pieces_and_need_not_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_key, "ROWS_HANDED_OVER", 2)

    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        sizes = [len(next(rows))] if key == "b" else [len(frame) for frame in rows]
        yield pd.DataFrame({"value": [sizes]})

    assert values(run(tmp_path, Doing(rows), *(record(key, 0) for key in "ababab"))) == [[2, 1], [2]]


def test_more_rows_than_may_be_held_are_handed_over_before_the_end(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        yield pd.DataFrame({"value": [frame["value"].tolist() for frame in rows]})

    outputs = run(tmp_path, Doing(rows), *(record("ab"[n % 2], n) for n in range(8)), held_rows_max=3)
    assert values(outputs) == [[0, 2], [1], [3, 5], [4], [6], [7]]


def test_more_bytes_than_may_be_held_are_handed_over_before_the_end(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        yield pd.DataFrame({"value": [[len(value) for frame in rows for value in frame["value"]]]})

    sizes = [400, 500, 1, 1_000, 5, 6]
    outputs = run(tmp_path, Doing(rows), *(record("a", "v" * size) for size in sizes), held_bytes_max=910)
    # Keys, headers and the quotes of JSON count, too.
    assert values(outputs) == [[400, 500], [1, 1_000], [5, 6]]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.5, 2.0], "float64"),
        ([True, False], "bool"),
        ([1, 2.5], "object"),
        ([1, None], "object"),
        ([1, 2**70], "object"),
        (["a", "b"], "object"),
        (["a", None], "object"),
        ([[1, 2], [3, 4]], "object"),
        ([{"a": 1}, {}], "object"),
    ],
)
def test_a_column_of_values_is_of_numbers_if_all_are(tmp_path: Path, given: list[Any], dtype: str) -> None:
    frames: list[pd.DataFrame] = []

    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        for frame in rows:
            frames.append(frame)
            yield frame[["value"]]

    outputs = run(tmp_path, Doing(rows), *(record("k", value) for value in given))
    assert str(frames[0]["value"].dtype) == dtype
    assert frames[0]["value"].tolist() == given
    assert [None if output[3] is None else Serdes.json().deserialize(output[3]) for output in outputs] == given


def test_an_instance_is_copied_for_each_batch(tmp_path: Path) -> None:
    class Counting(HeaderStatefulProcessor):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.calls.append("init")

        def handle_input_rows(
            self, key: Any, rows: Iterator[pd.DataFrame], context: KeyContext
        ) -> Iterator[pd.DataFrame]:
            self.calls.append(key)
            yield pd.DataFrame({"value": [self.calls]})

    given = Counting()
    batches = TaskBatches(tmp_path, topology_of(given))
    assert [values(batches.run(record("a", 1))) for _ in range(2)] == [[["init", "a"]]] * 2
    assert given.calls == []


def test_headers_are_as_they_were_when_the_record_came(tmp_path: Path) -> None:
    class Changing(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            record.headers.add("changed", b"")

    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        yield pd.DataFrame({"value": [1]})

    topology = topology_of(Doing(rows)).add_processor("changing", Changing, ["per-key-source"])
    assert TaskBatches(tmp_path, topology).run(record("a", 1)) == [("out", 5, b"a", b"1", headers(b"1"))]


class Totals(HeaderStatefulProcessor):
    """Keeps a total, a list of amounts and a count for each amount, and yields all three."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.get_value_state("total", Serdes.int64())
        self.amounts = handle.get_list_state("amounts", Serdes.int64())
        self.counts = handle.get_map_state("counts", Serdes.int64(), Serdes.int64(), ttl_ms=100)

    def handle_input_rows(self, key: Any, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        for frame in rows:
            for amount in frame["value"]:
                self.total.update((self.total.get() or 0) + amount)
                self.amounts.append_value(amount)
                self.counts.update_value(amount, (self.counts.get_value(amount) or 0) + 1)
        yield pd.DataFrame({"value": [[self.total.get(), list(self.amounts.get()), dict(self.counts.iterator())]]})


@pytest.mark.parametrize("persistent", [True, False])
def test_states_of_keys_survive_batches_failures_and_lost_disks(tmp_path: Path, persistent: bool) -> None:
    batches = TaskBatches(tmp_path, topology_of(Totals, persistent=persistent))
    batches.run(record("a", 1, 1, 50, b"2"), record("b", 5), record("a", 2, 2, 40), now_ms=0)
    batches.run(record("a", 9), now_ms=0, commits=False)
    batches.lose_disk()
    outputs = batches.run(record("a", 1), now_ms=99)
    assert values(outputs) == [[4, [1, 2, 1], {"1": 2, "2": 1}]]
    outputs = batches.run(record("a", 7), now_ms=100)
    assert values(outputs) == [[11, [1, 2, 1, 7], {"1": 2, "7": 1}]]
    assert sorted(batches.topology.store_builders) == ["amounts", "counts", "counts-expiry", "total"]


def test_entries_are_written_with_timestamp_and_headers_of_the_last_row(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, topology_of(Totals))
    batches.run(record("a", 1, 1, 50, b"2"), record("a", 2, 2, 40, b"3"))
    held = batches.look("total", lambda store: store.get(b"a"))
    assert (held.value, held.timestamp_ms, held.headers.to_bytes()) == (3, 40, headers(b"3"))
    cleared = Doing(
        lambda self, key, rows, context: self.total.clear() or iter(()),
        on_init=lambda self, handle: setattr(self, "total", handle.get_value_state("total", Serdes.int64())),
    )
    batches = TaskBatches(tmp_path / "second", topology_of(cleared))
    batches.run(record("a", 1, 1, 50, b"2"))
    assert batches.changelogs["total"] == [(b"a", None, 50, headers(b"2"))]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (pd.DataFrame({"value": [1]}), "returned a DataFrame, not an iterator"),
        (None, "returned a NoneType, not an iterator"),
        ([{"value": 1}], "yielded a dict, not a DataFrame"),
        ([pd.DataFrame({"values": [1]})], r"without a column value \(columns: \['values'\]\)"),
        ([pd.DataFrame({"value": [1], "offset": [1]})], r"unknown columns: \['offset'\]"),
        ([pd.DataFrame([[1, 2]], columns=["value", "value"])], "two columns of one name"),
        ([pd.DataFrame({"value": [1], "timestamp": ["now"]})], "a timestamp must be a datetime or an integer"),
        ([pd.DataFrame({"value": [1], "headers": [[("k", "text")]]})], "headers must be Headers or pairs"),
        ([pd.DataFrame({"value": [1], "headers": [7]})], "headers must be Headers or pairs"),
        ([pd.DataFrame({"value": [1], "topic": [7]})], "a topic must be text, not int"),
    ],
)
def test_wrong_outputs_are_named(tmp_path: Path, made: Any, problem: str) -> None:
    with pytest.raises(ProcessorError, match=f"OutputFrameError: .*{problem}") as failed:
        run(tmp_path, Doing(lambda self, key, rows, context: made), record("ada", 1))
    assert isinstance(failed.value.__cause__, OutputFrameError)
    assert (failed.value.node, failed.value.key_bytes) == ("per-key", 3)


def test_errors_of_user_code_name_node_and_key(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        self.handle.register_timer(1)
        if key == "ada":
            yield 1 // 0

    def timer(self: Any, key: str, context: KeyContext, timer: ExpiredTimer) -> Any:
        raise KeyError("oh")

    where = r"node 'count' failed in handle_input_rows\(\) on record in-3 at offset 0: ZeroDivisionError.* \(key "
    with pytest.raises(ProcessorError, match=where):
        run(tmp_path, Doing(rows), record("ada", 1), time_mode="event_time", name="count")
    where = (
        r"node 'count' failed in handle_expired_timer\(\) at 1 ms: KeyError: 'oh' \(key 81b637d8fcd2c6da of 3 bytes, "
    )
    with pytest.raises(ProcessorError, match=where):
        run(tmp_path, Doing(rows, timer), record("bob", 1), time_mode="event_time", name="count")


def out_of(home: Path, frame: pd.DataFrame) -> list[tuple[bytes | None, bytes | None, int]]:
    outputs = run(home, Doing(lambda self, key, rows, context: iter([frame])), record("ada", 1, timestamp_ms=5))
    return [(output[2], output[3], output[1]) for output in outputs]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.array([1, None], dtype="Int64"), [b"1", None]),
        (pd.array(["a", None], dtype="string"), [b'"a"', None]),
        ([1.5, None], [b"1.5", None]),
        (pd.Series([{"a": 1}, None]), [b'{"a":1}', None]),
        ([True, None], [b"true", None]),
    ],
)
def test_missing_values_are_nulls(tmp_path: Path, values: Any, expected: list[bytes | None]) -> None:
    assert [value for _, value, _ in out_of(tmp_path, pd.DataFrame({"value": values}))] == expected


def test_missing_keys_are_nulls_and_missing_timestamps_the_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"value": [1, 2], "key": ["bob", None], "timestamp": [7, None]})
    assert out_of(tmp_path, frame) == [(b"bob", b"1", 7), (None, b"2", 5)]
    frame = pd.DataFrame({"value": [1], "timestamp": pd.Series([np.int64(9)], dtype=object)})
    assert out_of(tmp_path / "more", frame) == [(b"ada", b"1", 9)]


def test_a_frame_without_columns_puts_nothing_out(tmp_path: Path) -> None:
    assert run(tmp_path, Doing(lambda self, key, rows, context: iter([pd.DataFrame()])), record("ada", 1)) == []


def test_a_record_without_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ProcessorError, match="on record in-3 at offset 8: InputError: a record without a key"
    ) as failed:
        run(tmp_path, Doing(), record(None, 1, 8))
    assert isinstance(failed.value.__cause__, InputError)


def test_states_are_had_in_init_only_and_the_same_every_time(tmp_path: Path) -> None:
    late = Doing(lambda self, key, rows, context: self.handle.get_value_state("x", Serdes.json()))
    with pytest.raises(ProcessorError, match=r"StateHandleError: 'x': states can be asked for in init\(\) only"):
        run(tmp_path, late, record("a", 1))

    def twice(self: Any, handle: StatefulProcessorHandle) -> None:
        handle.get_value_state("x", Serdes.json())
        handle.get_list_state("x", Serdes.json())

    with pytest.raises(StateHandleError, match="'x': was asked for twice"):
        topology_of(Doing(on_init=twice))

    names = iter(["first", "second"])
    changing = Doing(on_init=lambda self, handle: handle.get_value_state(next(self.names), Serdes.json()))
    changing_type = type("Changing", (Doing,), {"names": names})
    changing.__class__ = changing_type
    topology = topology_of(changing)
    with pytest.raises(StateHandleError, match="'second': was not asked for when the topology was made"):
        TaskBatches(tmp_path / "2", topology).run()

    kinds = iter(["get_value_state", "get_list_state"])
    kind_changing = Doing(on_init=lambda self, handle: getattr(handle, next(self.kinds))("x", Serdes.json()))
    kind_changing.__class__ = type("KindChanging", (Doing,), {"kinds": kinds})
    topology = topology_of(kind_changing)
    with pytest.raises(StateHandleError, match="'x': was a value state when the topology was made"):
        TaskBatches(tmp_path / "3", topology).run()


def test_states_and_timers_need_a_key(tmp_path: Path) -> None:
    with pytest.raises(StateHandleError, match=r"'x': can't be used in init\(\)"):
        topology_of(Doing(on_init=lambda self, handle: handle.get_value_state("x", Serdes.json()).get()))
    with pytest.raises(StateHandleError, match=r"'timers': can't be used in init\(\)"):
        topology_of(Doing(on_init=lambda self, handle: handle.register_timer(5)), time_mode="event_time")
    without_timers = Doing(lambda self, key, rows, context: self.handle.register_timer(5))
    with pytest.raises(ProcessorError, match='there are none with time_mode="none"'):
        run(tmp_path, without_timers, record("a", 1))


def test_illegal_arguments() -> None:
    with pytest.raises(ValueError, match="time_mode must be one of none, processing_time, event_time, not 'wall'"):
        topology_of(Doing(), time_mode="wall")
    for parameter in ("timer_resolution_ms", "held_rows_max", "held_bytes_max"):
        with pytest.raises(ValueError, match=f"{parameter} must be a whole number, 1 or more, got 0"):
            topology_of(Doing(), **{parameter: 0})
    with pytest.raises(ValueError, match="output_topic must be a name"):
        topology_of(Doing(), output_topic="")
    for processor in (7, dict):
        with pytest.raises(TypeError, match="processor must be a HeaderStatefulProcessor, its class or a function"):
            topology_of(processor)
    with pytest.raises(TypeError, match="state 'x' needs a Serde"):
        topology_of(Doing(on_init=lambda self, handle: handle.get_value_state("x", "int")))
    with pytest.raises(NotImplementedError, match="must define init"):
        topology_of(HeaderStatefulProcessor)


def test_a_state_that_is_given_up_is_emptied(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, topology_of(Totals))
    batches.run(record("a", 1), record("b", 2))

    def given_up(self: Any, handle: StatefulProcessorHandle) -> None:
        handle.delete_if_exists("amounts")
        handle.delete_if_exists("counts", had_ttl=True)
        self.total = handle.get_value_state("total", Serdes.int64())

    before = batches.topology.store_specs()
    batches.topology = topology_of(Doing(on_init=given_up))
    assert batches.topology.store_specs() == before
    batches.run()
    assert [batches.content(name) for name in ("amounts", "counts", "counts-expiry")] == [[], [], []]
    assert len(batches.content("total")) == 2


def test_a_topology_says_what_its_operator_needs_and_what_its_keys_are_made_of() -> None:
    def init(self: Any, handle: StatefulProcessorHandle) -> None:
        handle.get_value_state("total", Serdes.json(), ttl_ms=50)
        handle.get_list_state("seen", Serdes.json())
        handle.delete_if_exists("given-up")

    topology = topology_of(Doing(on_init=init), time_mode="event_time")
    needed = "per key, timers by event time, entries expire by processing time"
    assert str(topology.operators["per-key"]) == needed
    assert needed in topology.describe().to_mermaid()
    made_of = {"total": "value", "seen": "list", "per-key-timers": "timers"}
    assert topology.processors["per-key"].entry_keys == made_of, "of one that was given up it is not known"


def test_each_record_is_a_batch_in_a_test_driver() -> None:
    with TopologyTestDriver(customer_totals_topology()) as driver:
        orders = driver.create_input_topic("orders", key_serde=Serdes.string(), value_serde=Serdes.json())
        totals = driver.create_output_topic("customer-totals", key_serde=Serdes.string(), value_serde=Serdes.json())
        for number, amount in enumerate([3, 4, 5, 1]):
            orders.pipe_input("ada", {"amount": amount}, timestamp_ms=number, headers=Headers([("n", b"%d" % number)]))
        last = totals.read_records_to_list()[-1]
        assert last.value == {"total": 13, "largest": [3, 4, 5], "items": {"item 0": 1, "item 1": 2, "item 2": 1}}
        assert (last.key, last.timestamp_ms, last.headers) == ("ada", 3, Headers([("n", b"3")]))
        held = driver.get_timestamped_key_value_store_with_headers("total")
        assert held is not None
        assert [(key, entry.value) for key, entry in held.all()] == [(b"ada", 13)]
