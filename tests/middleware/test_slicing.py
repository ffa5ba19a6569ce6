"""Values that are too large travel in slices and come out whole, whatever order, copies and restarts there are."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, ProducerRecord, Serdes, Topology
from statestore.errors import ConfigException, ProcessorError
from statestore.errors.middleware import ChainOrderError, SliceError, SlicesIncompleteError
from statestore.middleware import Chain, EmittedRecord, FailureHandling, Interceptor
from statestore.middleware.size.slicing import CHUNK_HEADER, Slicing
from statestore.middleware.size.slicing.slice import Slice
from statestore.processor.rehearsal import uses_wall_clock
from statestore.recovery.making.placement import _KEY_OF as KEY_OF
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.passed_records import Clocks, arrived, contents, in_columns, produced, started

BYTES = Serdes.bytes()
VALUE = random.Random(7).randbytes(5000)
HEADERS = [("trace", b"\x01"), ("trace", None)]
GOLDEN = Path(__file__).parents[1] / "golden" / "slices.json"


def passing() -> Topology:
    topology = Topology()
    topology.add_source("in", "in", key_serde=BYTES, value_serde=BYTES)
    topology.add_sink("out", "out", ["in"], key_serde=BYTES, value_serde=BYTES)
    return topology


def cut(
    value: bytes = VALUE, key: bytes | None = b"k", max_bytes: int = 1000, headers: Any = HEADERS, **options: Any
) -> list[EmittedRecord]:
    """The slices of one record."""
    return list(Slicing(max_bytes, **options).on_emit(produced(key, value, headers, "in")))


class Run:
    """A driver around a topology that passes records on."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self._source = driver.create_input_topic("in", key_serde=BYTES, value_serde=BYTES)
        self._topics = {
            name: driver.create_output_topic(name, key_serde=BYTES, value_serde=BYTES) for name in ("out", "dead")
        }

    def pipe(self, records: Iterable[EmittedRecord]) -> list[TestRecord[Any, Any]]:
        """Give records to the topology, and return what came out."""
        for record in records:
            self._source.pipe_record_list(
                [TestRecord(record.key, record.value, record.timestamp_ms or 0, record.headers)]
            )
        return self.out()

    def out(self, topic: str = "out") -> list[TestRecord[Any, Any]]:
        if topic not in self.driver.produced_topic_names():
            return []
        return self._topics[topic].read_records_to_list()

    def dead(self) -> list[tuple[bytes | None, str, str]]:
        """Value, error class and message of each dead letter."""
        letters = self.out("dead")
        return [
            (letter.value, text(letter, "exception.class.name"), text(letter, "exception.message"))
            for letter in letters
        ]

    @property
    def entries(self) -> tuple[int, int]:
        """How many slices, and how many messages are known."""
        stores = self.driver.get_all_state_stores()
        return tuple(len(list(stores[name].all())) for name in ("slicing-chunks", "slicing-messages"))  # type: ignore


def text(letter: TestRecord[Any, Any], name: str) -> str:
    header = letter.headers.last_header(f"__connect.errors.{name}")
    return header.value.decode().rpartition("statestore.errors.")[2]


@contextmanager
def run(dead_letters: str | None = "dead", **options: Any) -> Iterator[Run]:
    slicing = Slicing(None, **{"use_timers": True, **options})
    with TopologyTestDriver(
        passing(), interceptors=[slicing], failures=FailureHandling(dead_letters=dead_letters)
    ) as driver:
        yield Run(driver)


def test_b15_slices_have_key_topic_and_time_and_the_first_keeps_the_headers() -> None:
    slices = cut()
    assert len(slices) == 6
    assert {(each.topic, each.key, each.timestamp_ms) for each in slices} == {("in", b"k", 1000)}
    assert b"".join(each.value for each in slices) == VALUE
    assert [[header.key for header in each.headers] for each in slices] == [
        ["trace", "trace", CHUNK_HEADER],
        *[[CHUNK_HEADER]] * 5,
    ]
    found = [Slice.of(each.headers) for each in slices]
    assert [(each.index, each.count, each.size_bytes) for each in found] == [(i, 6, 5000) for i in range(6)]
    assert len({each.message_id for each in found}) == 1


@given(st.binary(min_size=200, max_size=3000), st.integers(128, 600), st.binary(max_size=20), st.randoms())
@settings(max_examples=20, deadline=None)
def test_no_slice_is_larger_than_is_allowed_and_they_are_glued_in_any_order(
    value: bytes, max_bytes: int, key: bytes, shuffle: random.Random
) -> None:
    slices = cut(value, key, max_bytes)
    for each in slices:
        assert len(each.key) + len(each.value) + len(each.headers.to_bytes()) <= max_bytes
    assert len(slices) > 1 or len(key) + len(value) + len(Headers(HEADERS).to_bytes()) <= max_bytes
    shuffle.shuffle(slices)
    with run(persistent=False) as glue:
        (whole,) = glue.pipe(slices)
        assert (whole.key, whole.value, list(whole.headers)) == (key, value, HEADERS)
        assert glue.entries[0] == 0


def test_what_is_small_enough_is_untouched() -> None:
    record = produced(b"k", b"a" * 900, HEADERS)
    assert list(Slicing(1000).on_emit(record)) == [record]
    assert list(Slicing(1000).on_emit(produced(value=None))) == [produced(value=None)]
    assert list(Slicing(None).on_emit(produced(value=VALUE))) == [produced(value=VALUE)]
    with run() as glue:
        assert [(each.value, list(each.headers)) for each in glue.pipe([record])] == [(b"a" * 900, HEADERS)]
        assert glue.entries == (0, 0)


def test_b15_the_whole_record_has_the_first_slices_time_and_headers() -> None:
    first, *others = cut()
    others = [each.copy(timestamp_ms=5000, headers=[*each.headers, ("trail", b"x")]) for each in others]
    with run() as glue:
        (whole,) = glue.pipe([others[0], first, *others[1:]])
        assert (whole.value, whole.timestamp_ms, list(whole.headers)) == (VALUE, 1000, HEADERS)
        assert glue.dead() == []


def test_b15_interleaved_messages_come_out_each_by_itself() -> None:
    messages = [(b"a" * 2500, b"k"), (b"b" * 2500, b"k"), (b"c" * 2500, b"other"), (b"d" * 2500, b"")]
    mixed = [each for slices in zip(*(cut(value, key) for value, key in messages), strict=True) for each in slices]
    with run() as glue:
        assert [(each.value, each.key) for each in glue.pipe(mixed)] == messages


def test_two_equal_records_of_a_batch_are_two_messages() -> None:
    slicing = started(Slicing(1000, glue=False))
    one, two = ([*slicing.on_emit(produced(value=VALUE, topic="in"))] for _ in range(2))
    assert Slice.of(one[0].headers).message_id != Slice.of(two[0].headers).message_id
    with run() as glue:
        mixed = [each for pair in zip(one, two, strict=True) for each in pair]
        assert [each.value for each in glue.pipe(mixed)] == [VALUE, VALUE]


def test_a_retried_batch_gives_the_same_slices_and_the_next_batch_others() -> None:
    def emitted(clocks: Clocks) -> list[Any]:
        slicing = started(copy.copy(Slicing(1000, glue=False)), clocks)
        return contents(each for _ in range(2) for each in slicing.on_emit(produced(value=VALUE)))

    assert emitted(Clocks(1)) == emitted(Clocks(1))
    assert emitted(Clocks(1)) != emitted(Clocks(2))
    assert emitted(Clocks(1)) != emitted(Clocks(1, shard=1))


def test_b15_duplicates_are_dropped_while_a_message_is_open_and_not_reported_behind_it() -> None:
    slices = cut()
    with run(timeout=1000) as glue:
        assert glue.pipe([*slices[:3], *slices[:3], slices[0]]) == []
        assert [each.value for each in glue.pipe(slices[3:])] == [VALUE]
        assert glue.pipe(slices[4:]) == []
        glue.driver.advance_wall_clock_time(12_000)
        assert (glue.dead(), glue.entries) == ([], (0, 0))


@pytest.mark.parametrize("max_bytes", [1000, 999])
def test_a_message_that_is_sent_again_comes_again_as_any_record_would(max_bytes: int) -> None:
    with run() as glue:
        assert [each.value for each in glue.pipe([*cut(), *cut(max_bytes=max_bytes)])] == [VALUE, VALUE]


def test_a_producer_that_fails_and_sends_the_message_again_in_other_slices_is_not_mixed_up() -> None:
    with run(timeout=1000) as glue:
        assert [each.value for each in glue.pipe([*cut()[:3], *cut(max_bytes=700)])] == [VALUE]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("restore_from", ["disk", "changelog"])
def test_b15_a_restart_in_the_middle_of_a_message_loses_nothing(persistent: bool, restore_from: Any) -> None:
    slices = cut()
    with run(persistent=persistent) as glue:
        assert glue.pipe(slices[1:4]) == []
        glue.driver.restart(restore_from=restore_from)
        assert glue.entries == (3, 1)
        (whole,) = glue.pipe([slices[5], slices[0], slices[4]])
        assert (whole.value, list(whole.headers)) == (VALUE, HEADERS)
        assert glue.entries == (0, 1)


def test_b15_a_message_that_loses_slices_is_given_up_with_a_report() -> None:
    slices = cut()
    with run(timeout=timedelta(seconds=10)) as glue:
        glue.pipe([slices[2], slices[0], slices[5]])
        glue.driver.advance_wall_clock_time(9_000)
        assert glue.dead() == []
        glue.driver.restart()
        glue.driver.advance_wall_clock_time(4_000)
        ((value, error, message),) = glue.dead()
        assert (value, error) == (slices[0].value, "SlicesIncompleteError")
        assert "slices 1, 3-4 of 6 of message " in message
        assert "10000 ms" in message
        assert glue.entries == (0, 0)


def test_without_timers_what_is_overdue_is_found_by_the_next_batch_whatever_it_has() -> None:
    with run(timeout=10_000, use_timers=False) as glue:
        glue.pipe(cut()[1:3])
        glue.driver.restart()
        glue.driver.advance_wall_clock_time(20_000)
        glue.driver.restart()
        assert [each.value for each in glue.pipe([produced(value=b"v", topic="in")])] == [b"v"]
        assert [value for value, _, _ in glue.dead()] == [cut()[1].value]
        assert uses_wall_clock(passing().with_interceptors([Slicing(use_timers=True)]))
        assert not uses_wall_clock(passing().with_interceptors([Slicing()]))


def test_each_slice_that_comes_gives_a_message_more_time() -> None:
    slices = cut()
    with run(timeout=10_000) as glue:
        for each in slices[:5]:
            glue.pipe([each])
            glue.driver.advance_wall_clock_time(8_000)
        assert [each.value for each in glue.pipe(slices[5:])] == [VALUE]
        assert glue.dead() == []


def test_what_is_overdue_is_given_up_without_dead_letters_by_an_error() -> None:
    with run(dead_letters=None, timeout=10_000) as glue:
        glue.pipe(cut()[1:3])
        with pytest.raises(ProcessorError, match="Send the whole message again") as raised:
            glue.driver.advance_wall_clock_time(20_000)
    cause = raised.value.__cause__
    assert isinstance(cause, SlicesIncompleteError)
    assert (cause.count, cause.missing) == (6, "0, 3-5")


def test_the_report_is_of_the_record_as_it_came() -> None:
    slices = cut()
    with run(timeout=10) as glue:
        glue.pipe(slices[3:5])
        glue.driver.advance_wall_clock_time(10_020)
        (letter,) = glue.out("dead")
        assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", slices[3].value, 1000)
        assert letter.headers.last_header(CHUNK_HEADER) == slices[3].headers.last_header(CHUNK_HEADER)
        assert text(letter, "offset") == "0"


def test_messages_that_are_open_are_bounded_in_number_and_the_oldest_goes() -> None:
    with run(max_open_messages=3) as glue:
        for number in range(5):
            glue.pipe(cut(b"%d" % number * 2500)[:1])
        assert [(value[:1], "more than 3 messages" in message) for value, _, message in glue.dead()] == [
            (b"0", True),
            (b"1", True),
        ]
        assert glue.entries == (3, 3)


def test_what_was_delivered_goes_before_what_is_open() -> None:
    with run(max_open_messages=3) as glue:
        glue.pipe(cut(b"o" * 2500)[:1])
        for number in range(5):
            assert len(glue.pipe(cut(b"%d" % number * 2500))) == 1
        assert (glue.dead(), glue.entries) == ([], (1, 3))


def test_slices_are_bounded_in_bytes() -> None:
    with run(max_message_bytes=10_000, max_open_bytes=10_000) as glue:
        for number in range(4):
            glue.pipe(cut(b"%d" % number * 5000)[:4])
        assert [value[:1] for value, _, _ in glue.dead()] == [b"0", b"1"]
        with_headers = [each.copy(headers=[*each.headers, ("h", b"x" * 6000)]) for each in cut(b"z" * 5000)]
        assert glue.pipe(with_headers) == []
        stores = glue.driver.get_all_state_stores()
        held = sum(len(entry.value) + len(entry.header_bytes) for _, entry in stores["slicing-chunks"].all())
        assert held <= 10_000


def test_bounds_hold_across_restarts_and_the_oldest_is_still_the_oldest() -> None:
    with run(max_message_bytes=10_000, max_open_bytes=10_000) as glue:
        for number in range(4):
            glue.pipe(cut(b"%d" % number * 5000, key=b"%d" % (9 - number))[:2])
            glue.driver.advance_wall_clock_time(1)
        assert glue.dead() == []
        glue.driver.restart()
        glue.pipe(cut(b"z" * 5000)[:2])
        assert [value[:1] for value, _, _ in glue.dead()] == [b"0"]


def changed(record: EmittedRecord, **fields: Any) -> EmittedRecord:
    """A slice with another header."""
    slice_ = Slice.of(record.headers)
    headers = record.headers.copy().remove(CHUNK_HEADER)
    values = {**vars(slice_), **fields}
    return record.copy(headers=headers.add(CHUNK_HEADER, Slice(**values).to_bytes()))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda each: changed(each, count=7), "but others of that message say"),
        (lambda each: changed(each, size_bytes=6000), "but others of that message say"),
        (lambda each: changed(each, crc32=1), "but others of that message say"),
        (lambda each: changed(each, index=0), "came before with another value"),
        (lambda each: changed(each, index=6), "which can't be"),
        (lambda each: changed(each, index=0, count=0), "which can't be"),
        (lambda each: changed(each, count=2**32 - 1), "which can't be"),
        (lambda each: changed(each, size_bytes=2**32 - 1), "raise max_message_bytes"),
        (lambda each: each.copy(value=b""), "without a value"),
        (lambda each: each.copy(value=None), "without a value"),
        (lambda each: each.copy(value=each.value * 6), "larger than the message"),
        (lambda each: each.copy(headers=[(CHUNK_HEADER, b"")]), "bytes of version 1"),
        (lambda each: each.copy(headers=[(CHUNK_HEADER, b"\x02" + bytes(32))]), "bytes of version 1"),
        (lambda each: each.copy(headers=[(CHUNK_HEADER, b"\x01" * 10_000)]), "bytes of version 1"),
    ],
)
def test_a_slice_that_is_none_of_its_message_is_refused_and_that_one_still_comes(
    wrong: Callable[[EmittedRecord], EmittedRecord], problem: str
) -> None:
    slices = cut()
    with run() as glue:
        assert glue.pipe([slices[0], wrong(slices[1])]) == []
        ((_, error, message),) = glue.dead()
        assert error == "SliceError"
        assert problem in message
        assert [each.value for each in glue.pipe(slices[1:])] == [VALUE]


def test_a_message_that_is_not_what_was_sliced_is_refused() -> None:
    slices = cut()
    damaged = [slices[0], slices[1].copy(value=slices[1].value[:-1] + b"!"), *slices[2:]]
    short = [slices[0], slices[1].copy(value=slices[1].value[:-1]), *slices[2:]]
    with run() as glue:
        for wrong in (damaged, short):
            assert glue.pipe(wrong) == []
            ((value, _, message),) = glue.dead()
            assert value == slices[5].value
            assert "is not what was sliced" in message
            assert glue.entries == (0, 0)
        assert [each.value for each in glue.pipe(slices)] == [VALUE]


def test_a_header_without_a_value_says_nothing() -> None:
    with run() as glue:
        (record,) = glue.pipe([produced(value=b"v", headers=[(CHUNK_HEADER, None)], topic="in")])
        assert list(record.headers) == [(CHUNK_HEADER, None)]


def test_records_without_keys_are_sliced_only_if_one_shard_gets_all() -> None:
    with pytest.raises(SliceError, match="it has no key"):
        cut(key=None)
    nobody, empty = cut(key=None, allow_null_keys=True), cut(key=b"")
    with run() as glue:
        mixed = [each for pair in zip(nobody, empty, strict=True) for each in pair]
        assert [(each.key, each.value) for each in glue.pipe(mixed)] == [(None, VALUE), (b"", VALUE)]
        glue.pipe(nobody[:1])
    with run(timeout=10) as glue:
        glue.pipe(nobody[:1])
        glue.driver.advance_wall_clock_time(10_020)
        assert glue.out("dead")[0].key is None


@pytest.mark.parametrize(
    ("value", "options", "problem"),
    [
        (VALUE, {"headers": [("h", b"x" * 1000)]}, "leave no room"),
        (VALUE, {"key": b"k" * 1000}, "leave no room"),
        (VALUE, {"max_message_bytes": 4999}, "raise max_message_bytes"),
        (b"x" * 6_000_000, {"max_bytes": 128, "key": b""}, "65536 are allowed"),
    ],
)
def test_what_can_not_be_sliced_is_refused(value: bytes, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SliceError, match=problem):
        cut(value, **options)


def test_slices_are_handed_on_by_who_does_not_glue_and_not_sliced_again() -> None:
    relay = Slicing(1000, glue=False)
    assert relay.stores() == ()
    with TopologyTestDriver(passing(), interceptors=[relay]) as driver:
        sent = Run(driver).pipe(cut())
        assert [list(each.headers) for each in sent] == [list(each.headers) for each in cut()]
        assert contents(Slicing(200).on_emit(cut()[0])) == contents(cut()[:1])


def test_columns_without_slices_are_handed_on_and_others_are_taken_one_by_one() -> None:
    small, large = produced(value=b"v"), produced(value=VALUE)
    slicing = started(Slicing(1000, glue=False))
    columns = in_columns([small, small])
    assert slicing.on_emit_columns(columns) is columns
    assert slicing.on_emit_columns(in_columns([small, large])) is None
    gluing = Slicing(1000)
    assert gluing.on_ingest_columns(columns) is columns
    assert gluing.on_ingest_columns(in_columns([small, *cut()])) is None
    assert slicing.on_ingest_columns(in_columns(cut())) is not None


def test_a_micro_batch_in_columns_has_slices_among_other_records() -> None:
    plain = [produced(b"p", b"%d" % number, topic="in") for number in range(3)]
    slices = cut()
    with run() as glue:
        records = [plain[0], *slices[:3], plain[1], slices[0], *slices[3:], plain[2]]
        source = glue.driver.create_input_topic("in", key_serde=BYTES, value_serde=BYTES)
        source.pipe_micro_batch([TestRecord(each.key, each.value, 1000, each.headers) for each in records])
        assert [each.value for each in glue.out()] == [b"0", b"1", VALUE, b"2"]


def test_one_query_slices_what_it_glued() -> None:
    with TopologyTestDriver(passing(), interceptors=[Slicing(1000)]) as driver:
        sent = Run(driver).pipe(cut(max_bytes=600))
        assert b"".join(each.value for each in sent) == VALUE
        assert [header.key for header in sent[0].headers] == ["trace", "trace", CHUNK_HEADER]


def test_slices_stand_below_the_key_of_their_record_so_that_a_state_can_be_rescaled() -> None:
    with run() as glue:
        glue.pipe([*cut(key=b"one")[:2], *cut(key=b"two")[:1]])
        stores = glue.driver.get_all_state_stores()
        entry_keys = {store.builder.name: store.entry_keys for store in Slicing().stores()}
        assert set(entry_keys) == {"slicing-chunks", "slicing-messages"}
        for name, word in entry_keys.items():
            key_of = KEY_OF[word]
            assert {key_of(key) for key, _ in stores[name].all()} == {b"one", b"two"}


def test_the_golden_slices_are_what_is_written_and_read() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    record = golden["record"]
    cutter = started(Slicing(golden["max_bytes"], glue=False), Clocks(golden["batch_ms"], golden["shard"]))
    made = cutter.on_emit(
        ProducerRecord(
            record["topic"],
            key=bytes.fromhex(record["key"]),
            value=bytes.fromhex(record["value"]),
            timestamp_ms=record["timestamp_ms"],
            headers=[(key, bytes.fromhex(value)) for key, value in record["headers"]],
        )
    )
    assert [
        {"value": each.value.hex(), "headers": [[key, value.hex()] for key, value in each.headers]} for each in made
    ] == golden["slices"]
    read = Slice.of(Headers([(CHUNK_HEADER, bytes.fromhex(golden["header"]))]))
    assert {**vars(read), "message_id": read.message_id.hex()} == golden["fields"]
    assert read.to_bytes().hex() == golden["header"]


def test_an_order_in_which_whole_values_would_be_changed_in_slices_is_refused() -> None:
    class Compression(Interceptor):
        kind = "compression"

    with pytest.raises(ChainOrderError, match="slice last"):
        Chain([Slicing(), Compression()])
    assert Chain([Compression(), Slicing()]).describe() == "compression -> slicing"


def test_it_is_made_of_a_configuration() -> None:
    made = Slicing.from_config({"statestore.slicing.max.bytes": "500", "statestore.slicing.glue": "false"})
    assert (repr(made), made.stores()) == ("Slicing(max_bytes=500)", ())
    assert repr(Slicing.from_config({})) == "Slicing(max_bytes=900000)"
    with pytest.raises(ConfigException, match=r"statestore\.slicing"):
        Slicing.from_config({"statestore.slicing.max.bytes": "5"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_bytes": 127},
        {"max_message_bytes": 0},
        {"max_message_bytes": 2**31},
        {"max_open_messages": 0},
        {"max_open_bytes": 1},
        {"timeout": 0},
    ],
)
def test_arguments_that_can_not_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must"):
        Slicing(**wrong)


def test_gluing_without_a_query_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="give a chain with Slicing to a query or a driver"):
        Chain([Slicing()]).ingest(arrived(cut()[0]))
