"""Chains: the order of their interceptors, who may stand where, and how records and columns pass them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import ConsumerRecord, Headers, ProducerRecord
from statestore.errors import ConfigException, ProcessorError, RecordRefusedError
from statestore.errors.middleware import ChainOrderError
from statestore.format.records.header_bytes import parse_count
from statestore.headers.record_columns import RecordColumns
from statestore.headers.topic_columns import (
    SinkFields,
    SourceFields,
    sink_batch,
    sink_records,
    source_batch,
    source_records,
)
from statestore.interception.chain import chain_of, query_chain
from statestore.interception.task_passages import Ingest, TaskEmission
from statestore.middleware import Chain, EmittedRecord, IngestedRecord, Interceptor
from tests.support.interceptors import ColumnStamp, Doubling, ForbiddenError, Named, Refusing, Stamp

STACK = [Stamp("a"), ColumnStamp("b"), Doubling("c"), Refusing("d"), ColumnStamp("e")]


class Compression(Named):
    kind = "compression"
    not_after: ClassVar = {"encryption": "ciphertext does not get smaller"}


class Encryption(Named):
    kind = "encryption"


class Slicing(Named):
    kind = "slicing"
    not_before: ClassVar = {"encryption": "a slice is no value"}


def consumed(value: bytes | None = b"v", headers: Iterable[tuple[str, bytes | None]] = ()) -> IngestedRecord:
    return ConsumerRecord("in", 0, 7, key=b"k", value=value, timestamp_ms=5, headers=headers)


def produced(value: bytes | None = b"v") -> EmittedRecord:
    return ProducerRecord("out", key=b"k", value=value, timestamp_ms=5)


def test_b4_two_vendors_coexist_and_the_consume_order_is_the_reverse_of_the_produce_order() -> None:
    chain = Chain([Stamp("first"), Chain([Stamp("second")]), ColumnStamp("third")])
    assert len(chain) == 3
    (sent,) = chain.emit(produced())
    (taken,) = chain.ingest(consumed(headers=sent.headers))
    assert list(sent.headers) == [("out", b"first"), ("out", b"second"), ("out", b"third")]
    assert [header.value for header in taken.headers.headers("in")] == [b"third", b"second", b"first"]


def test_b8_lists_out_let_one_record_become_two_or_none_after_serialisation_and_before_it() -> None:
    chain = Chain([Doubling("a"), Stamp("b")])
    assert [(made.topic, made.value) for made in chain.emit(produced(b"x"))] == [("out", b"x"), ("out-2", b"xx")]
    assert [made.value for made in chain.ingest(consumed(b"x"))] == [b"x", b"xx"]
    assert chain.emit(produced(None)) == []


def test_an_order_that_can_not_work_is_refused_with_the_reason() -> None:
    for broken in ([Encryption("e"), Compression("c")], [Slicing("s"), Stamp("x"), Encryption("e")]):
        with pytest.raises(ChainOrderError) as raised:
            Chain(broken)
        assert (raised.value.first, raised.value.second) == (broken[0].name, broken[-1].name)
        assert raised.value.reason in str(raised.value)
    assert Chain([Compression("c"), Encryption("e"), Slicing("s")]).describe() == "c -> e -> s"


class Bringing(Named):
    def __init__(self, *names: str) -> None:
        super().__init__("bringing")
        self.brings_in = names


class Going(Named):
    def __init__(self, *names: str) -> None:
        super().__init__("going")
        self.goes_by = names


@pytest.mark.parametrize(
    ("brought", "trusted", "is_refused"),
    [
        ("who", "who", True),
        ("who", "whose", False),
        ("ce_*", "ce_id", True),
        ("ce_*", "ce_*", True),
        ("ce_id", "ce_*", True),
        ("ce_type*", "ce_*", True),
        ("ce_*", "ce", False),
        ("*", "who", True),
        ("who", "*", True),
        ("*", "*", True),
    ],
)
def test_what_an_interceptor_goes_by_is_not_brought_in_behind_it(brought: str, trusted: str, is_refused: bool) -> None:
    bringing, going = Bringing("other", brought), Going(trusted)
    assert Chain([going, bringing]).describe() == "going -> bringing", "what comes in is brought in first"
    if not is_refused:
        assert Chain([bringing, going]).describe() == "bringing -> going"
        return
    with pytest.raises(ChainOrderError, match="'going' must not come after 'bringing' in a chain: it goes by header"):
        Chain([bringing, going])


def test_a_chain_is_made_of_interceptors_that_can_be_told_apart() -> None:
    for part in (Stamp, "Stamp", None):
        with pytest.raises(TypeError, match=r"interceptors \(objects, not their classes\) and functions"):
            Chain([part])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="two interceptors of the chain are called 'a'"):
        Chain([Stamp("a"), ColumnStamp("a")])


def test_b5_interceptors_are_named_by_configuration_as_classes_and_given_all_properties() -> None:
    text = "statestore.interceptors=tests.middleware.test_chain:FromConfig\nstatestore.interceptors.mark=x\n"
    (made,) = chain_of(text).emit(produced())
    assert list(made.headers) == [("mark", b"x")]
    both = query_chain(Stamp("own"), {"statestore.interceptors": ["tests.middleware.test_chain:FromConfig"]})
    assert [interceptor.name for interceptor in both] == ["own", "FromConfig"]


@pytest.mark.parametrize("named", ["no.such.module:Class", "tests.middleware.test_chain:consumed", "Stamp", ""])
def test_a_name_of_no_interceptor_is_refused_by_the_name_of_its_property(named: str) -> None:
    given = {"statestore.interceptors": named}
    if not named:
        assert len(chain_of(given)) == 0
        return
    with pytest.raises(ConfigException) as raised:
        chain_of(given)
    assert raised.value.name == "statestore.interceptors"


class FromConfig(Interceptor):
    def __init__(self, mark: str = "none") -> None:
        self._mark = mark

    @classmethod
    def from_config(cls, config: Any) -> FromConfig:
        return cls(config.get("statestore.interceptors.mark", "none"))

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        record.headers.add("mark", self._mark.encode())
        return [record]


VALUES = st.none() | st.sampled_from([b"", b"x", b"bad", b"bad luck", b"good"])
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "in"]), st.none() | st.binary(max_size=3)), max_size=3)
PASSED = st.permutations(STACK).flatmap(lambda stack: st.integers(0, len(STACK)).map(lambda size: stack[:size]))


class Refused(list[tuple[Any, str, str]]):
    def note(self, source: Any, interceptor: str, error: RecordRefusedError) -> None:
        self.append((source, interceptor, type(error).__name__))


@given(PASSED, st.lists(st.tuples(VALUES, HEADERS), min_size=1, max_size=6))
def test_what_comes_in_passes_in_columns_as_it_does_record_by_record(stack: list[Interceptor], rows: Any) -> None:
    records: list[SourceFields] = [
        ("in", 0, offset, 5 + offset, b"k", value, Headers(headers).to_bytes())
        for offset, (value, headers) in enumerate(rows)
    ]
    alone, together = Refused(), Refused()
    one_by_one = list(Ingest(stack, alone.note).records(records))
    in_columns = [
        one for part in Ingest(stack, together.note).batches(source_batch(records)) for one in source_records(part)
    ]
    assert in_columns == one_by_one
    assert together == alone
    assert all(source in records for source, _, _ in alone), "refused records are given as they came"


@given(PASSED, st.lists(st.tuples(VALUES, HEADERS), min_size=1, max_size=6))
def test_what_goes_out_passes_in_columns_as_it_does_record_by_record(stack: list[Interceptor], rows: Any) -> None:
    records: list[SinkFields] = [
        ("out", 5 + number, b"k", value, Headers(headers).to_bytes()) for number, (value, headers) in enumerate(rows)
    ]

    current: list[SourceFields] = []

    def emission(sent: list[SinkFields], refused: Refused) -> TaskEmission:
        return TaskEmission(
            stack,
            lambda *record: sent.append(record),
            lambda batch: sent.extend(sink_records(batch)),
            refused.note,
            lambda: current[-1],
            lambda *place: (*place, 0, None, None, b""),
        )

    alone: list[SinkFields] = []
    together: list[SinkFields] = []
    refused_alone, refused_together = Refused(), Refused()
    by_record = emission(alone, refused_alone)
    for number, record in enumerate(records):
        current.append(("in", 0, number, 0, None, None, b""))
        by_record.send(*record)
    by_record.flush()
    origin = pa.record_batch(
        [pa.array(["in"] * len(rows)), pa.array([0] * len(rows)), pa.array(range(len(rows)))],
        names=["topic", "partition", "offset"],
    )
    emission(together, refused_together).send_batch(sink_batch(*zip(*records, strict=True)), origin)
    assert sorted(map(repr, together)) == sorted(map(repr, alone))
    assert sorted(refused_together) == sorted(refused_alone), "of the same input records"


def test_what_is_held_to_go_out_in_columns_goes_before_columns_that_come_later() -> None:
    sent: list[SinkFields] = []
    emission = TaskEmission(
        [ColumnStamp("a")], lambda *_: None, lambda batch: sent.extend(sink_records(batch)), Refused().note,
        lambda: None, lambda *_: None,
    )  # fmt: skip
    emission.send("out", 1, b"first", None, b"")
    emission.send_batch(sink_batch(["out"], [2], [b"second"], [None], [b""]), None)
    emission.send("out", 3, b"third", None, b"")
    emission.flush()
    assert [record[2] for record in sent] == [b"first", b"second", b"third"]


def test_the_record_as_it_came_is_known_for_the_one_that_was_passed_last() -> None:
    rows: list[SourceFields] = [("in", 0, offset, 5, b"k", b"v", b"") for offset in range(2)]
    ingest = Ingest([Stamp("a")])
    assert [made[6] != b"" for made in ingest.records(rows)] == [True, True]
    assert ingest.original("in", 0, 1) == rows[1]
    assert ingest.original("in", 0, 0) is None
    assert len(list(ingest.batches(source_batch(rows)))) == 1
    assert [ingest.original(*row[:3]) for row in rows] == rows


def test_a_hook_that_is_not_defined_costs_nothing_and_nothing_is_parsed_that_nobody_asked_for() -> None:
    records: list[SourceFields] = [("in", 0, 1, 5, b"k", b"v", Headers([("a", b"1")]).to_bytes())]
    before = parse_count()
    assert list(Ingest([Named("nothing")]).records(records)) == records
    assert list(Ingest([Refusing("no headers")]).records(records)) == records
    assert parse_count() == before


class Faulty(Named):
    def __init__(self, make: Any) -> None:
        super().__init__("faulty")
        self._make = make

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        made: Iterable[IngestedRecord] = self._make(record)
        return made


class FaultyColumns(Faulty):
    on_ingest = Interceptor.on_ingest

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        made: RecordColumns = self._make(records)
        return made


def other_key(record: IngestedRecord) -> list[IngestedRecord]:
    return [record.copy(key=b"other")]


@pytest.mark.parametrize(
    ("interceptor", "problem"),
    [
        (Faulty(lambda record: ["text"]), "must return ConsumerRecords, not str of 4"),
        (Faulty(lambda record: None), "NoneType"),
        (Faulty(other_key), "must not change topic, partition, offset or key"),
        (Faulty(lambda record: [record.copy(value="text")]), "a value of bytes or None, not str of 4"),
        (Faulty(lambda record: [record.copy(timestamp_ms=-5)]), "must not give a negative timestamp"),
        (Faulty(lambda record: 1 / 0), "ZeroDivisionError"),
        (FaultyColumns(lambda columns: columns.value), "must return RecordColumns"),
        (FaultyColumns(lambda columns: columns.with_columns(key=columns.value)), "must not change topic"),
        (FaultyColumns(lambda columns: columns.with_columns(value=columns.timestamp_ms)), "of bytes, not a column of"),
        (
            FaultyColumns(lambda columns: RecordColumns(columns.key, columns.value, columns.timestamp_ms)),
            "derive its columns",
        ),
    ],
)
def test_what_an_interceptor_must_not_do_names_it_and_the_record(interceptor: Interceptor, problem: str) -> None:
    records: list[SourceFields] = [("in", 0, offset, 5, b"k", b"v", b"") for offset in range(2)]
    for run in (
        lambda: list(Ingest([interceptor]).records(records)),
        lambda: list(Ingest([interceptor]).batches(source_batch(records))),
    ):
        with pytest.raises(ProcessorError, match=problem) as raised:
            run()
        assert (raised.value.node, raised.value.topic, raised.value.offset) == ("faulty", "in", 0)


def test_a_refusal_that_nobody_takes_is_raised() -> None:
    with pytest.raises(ForbiddenError):
        list(Ingest([Refusing("r")]).records([("in", 0, 1, 5, b"k", b"bad", b"")]))


def test_interceptors_travel_to_executors() -> None:
    travelled = pickle.loads(pickle.dumps(Chain([Stamp("a"), Refusing("b")])))
    assert travelled.describe() == "a -> b"
    assert [list(made.headers) for made in travelled.emit(produced())] == [[("out", b"a")]]


class Inflated(Interceptor):
    """Makes large values of small ones, and notes which has made one of what."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self._name, self.noted = name, noted

    @property
    def name(self) -> str:
        return self._name

    def on_ingest(self, record: IngestedRecord) -> list[IngestedRecord]:
        self.noted.append(f"{self._name}{record.offset}")
        return [record.copy(value=b"x" * 500)]

    def on_ingest_columns(self, records: RecordColumns) -> None:
        return None


def test_what_becomes_a_lot_goes_on_in_parts_each_to_its_end_before_the_next_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("statestore.interception.passage.PART_BYTES", 1000)
    noted: list[str] = []
    rows = [("t", 0, offset, 1000, b"k", b"v", b"") for offset in range(5)]
    counts = []
    for part in Ingest([Inflated("b", noted), Inflated("a", noted)]).batches(source_batch(rows)):
        noted.append("processed")
        counts.append(part.num_rows)
    assert counts == [2, 2, 1]
    assert noted == [
        *["a0", "a1", "b0", "b1", "processed", "a2", "a3", "b2", "b3", "processed"],
        "a4",
        "b4",
        "processed",
    ]
