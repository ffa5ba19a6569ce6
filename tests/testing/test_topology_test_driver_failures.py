"""What the test driver does when something fails: nothing of it is committed, and nothing goes on by itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from statestore import (
    Headers,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Topology,
    ValueTimestampHeaders,
)
from statestore.errors import DeserializationError, DriverError, ProcessorError, TopologyError
from statestore.errors.harness import DriverClosedError, DriverFailedError
from statestore.middleware import FailureHandling
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import (
    BYTES,
    INT64,
    KINDS,
    TEXT,
    chain,
    changelog_of,
    forward,
    input_of,
    output_of,
    storing,
    with_global_store,
)

HEADERS = Headers([("h", b"1")])
WALL = PunctuationType.WALL_CLOCK_TIME


class Boom(Exception):
    """What user code raises here."""


def failing_on(value: str, kind: str = "headers-kv") -> Any:
    """Return a function that stores, forwards, and then fails on one value."""

    def process(context: ProcessorContext, record: Record[Any, Any]) -> None:
        made = KINDS[kind]
        made.put(context.state_store("s"), record.key, record.value, record.timestamp_ms, record.headers)
        context.forward(record)
        if record.value == value:
            raise Boom(value)

    return process


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_record_that_fails_nothing_is_committed(kind: str, in_memory: bool) -> None:
    made, closed = KINDS[kind], []  # type: ignore[var-annotated]
    builder = (made.in_memory if in_memory else made.persistent)("s")
    topology = chain(failing_on("boom", kind), builder, closed=closed)
    with TopologyTestDriver(topology) as driver:
        topic = input_of(driver)
        topic.pipe_input("k", "good", timestamp_ms=5)
        kept = changelog_of(driver, "s")
        with pytest.raises(ProcessorError, match=r"'p' failed on record in-0 at offset 1: Boom: boom") as caught:
            topic.pipe_input("k", "boom", timestamp_ms=500_000)
        assert isinstance(caught.value.__cause__, Boom)
        assert closed == ["p"]
        # Nothing is to be seen of it, not even that its time let others expire.
        assert made.get(driver.get_state_store("s"), "k", 5) == made.held("good", 5, Headers())
        assert made.get(driver.get_state_store("s"), "k", 500_000) in (None, made.held("good", 5, Headers()))
        assert changelog_of(driver, "s") == []
        assert output_of(driver).read_values_to_list() == ["good"]
        assert driver.stream_time_ms == 5
        for use in (lambda: topic.pipe_input("k", "more"), lambda: driver.advance_wall_clock_time(1)):
            with pytest.raises(DriverFailedError, match=r"ProcessorError: .*Boom: boom.*restart\(\)"):
                use()
        for how in ("disk", "changelog"):
            driver.restart(restore_from=how)  # type: ignore[arg-type]
            assert made.get(driver.get_state_store("s"), "k", 5) == made.held("good", 5, Headers())
        topic.pipe_input("k", "next", timestamp_ms=6)
        assert output_of(driver).read_values_to_list() == ["next"]
        assert len(kept) == 1


def test_of_a_list_everything_before_the_failure_is_committed() -> None:
    with TopologyTestDriver(chain(failing_on("boom"), KINDS["headers-kv"].persistent("s"))) as driver:
        topic = input_of(driver)
        store = driver.get_timestamped_key_value_store_with_headers("s")
        assert store is not None
        store.put("mine", ValueTimestampHeaders("m", 1, HEADERS))
        with pytest.raises(ProcessorError, match="offset 2"):
            topic.pipe_key_value_list([("a", "1"), ("b", "2"), ("c", "boom"), ("d", "4")])
        assert [key for key, *_ in changelog_of(driver, "s")] == [b"mine", b"a", b"b"]
        assert output_of(driver).read_values_to_list() == ["1", "2"]
        driver.restart()
        assert driver.metrics()["process-total"] == 0
        # The record that failed was never read, as far as the input goes.
        with pytest.raises(ProcessorError, match="offset 2"):
            topic.pipe_input("c", "boom")


@pytest.mark.parametrize("in_batch", [False, True], ids=["record", "micro-batch"])
def test_what_fails_when_a_batch_is_finished_was_never_read_either(in_batch: bool) -> None:
    class FailsOnce(Processor):
        fails = True

        def init(self, context: ProcessorContext) -> None:
            self.context = context
            self.held: list[tuple[Any, ...]] = []

        def process(self, record: Record[Any, Any]) -> None:
            metadata = self.context.record_metadata
            assert metadata is not None
            self.held.append((record.value, metadata.offset, look(self.context.state_store("g"))))

        def finish_batch(self) -> None:
            if FailsOnce.fails:
                raise Boom
            for held in self.held:
                self.context.forward(Record("k", held, 0))
            self.held = []

    def look(store: Any) -> list[str]:
        return [key for key, _ in store.all()]

    topology = with_global_store(forward, in_memory=True)
    topology.processors["p"].supplier = FailsOnce
    FailsOnce.fails = False
    with TopologyTestDriver(topology) as driver:

        def pipe(topic: str, value: str) -> None:
            ends, record = input_of(driver, topic), TestRecord(value, value, 1)
            ends.pipe_micro_batch([record]) if in_batch else ends.pipe_input(record)

        pipe("in", "first")
        for topic in ("global", "in"):
            FailsOnce.fails = True
            with pytest.raises(ProcessorError, match=r"in finish_batch\(\): Boom"):
                pipe(topic, "lost")
            FailsOnce.fails = False
            driver.restart(restore_from="changelog")
        pipe("in", "next")
        out = [Serdes.json().deserialize(value) for value in output_of(driver, value_serde=BYTES).read_values_to_list()]
        assert out == [["first", 0, []], ["next", 1, []]]


@pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])
def test_what_the_test_wrote_before_a_failure_stays(caching: bool) -> None:
    builder = KINDS["kv"].persistent("s")
    with TopologyTestDriver(
        chain(failing_on("boom", "kv"), builder.with_caching_enabled() if caching else builder)
    ) as driver:
        store = driver.get_key_value_store("s")
        assert store is not None
        store.put("mine", "m")
        with pytest.raises(ProcessorError):
            input_of(driver).pipe_input("k", "boom")
        after = driver.get_key_value_store("s")
        assert after is not None
        assert list(after.all()) == [("mine", "m")]
        assert [key for key, *_ in changelog_of(driver, "s")] == [b"mine"]


def test_a_record_that_fails_when_it_is_piped_again_waits_for_a_mended_topology() -> None:
    def topology(broken: bool) -> Topology:
        made = chain(forward)
        made.add_source("again", "out", key_serde=TEXT, value_serde=TEXT)
        made.add_processor("q", lambda: Fragile(broken), ["again"])
        made.add_sink("end", "end", ["q"])
        return made

    with TopologyTestDriver(topology(True)) as driver:
        with pytest.raises(ProcessorError, match="'q' failed on record out-0 at offset 0"):
            input_of(driver).pipe_input("k", "v")
        assert output_of(driver).read_values_to_list() == ["v"]
        with pytest.raises(ProcessorError, match="'q' failed on record out-0 at offset 0"):
            driver.restart()
        with pytest.raises(DriverFailedError):
            input_of(driver).pipe_input("k", "w")
        driver.restart(topology(False))
        assert output_of(driver, "end").read_values_to_list() == ["v"]
        input_of(driver).pipe_input("k", "w")
        assert output_of(driver, "end").read_values_to_list() == ["w"]


class Fragile(Processor):
    """Forwards, if it is not broken."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        if self.broken:
            raise Boom
        self.context.forward(record)


def test_a_punctuator_that_fails_is_due_again_after_the_restart() -> None:
    fragile = [True]
    fired: list[int] = []

    def punctuate(context: ProcessorContext, now_ms: int) -> None:
        context.state_store("s").put("k", str(now_ms))
        if fragile[0]:
            raise Boom
        fired.append(now_ms)

    def init(context: ProcessorContext) -> None:
        context.schedule(10, WALL, lambda now_ms: punctuate(context, now_ms))

    with TopologyTestDriver(chain(forward, KINDS["kv"].persistent("s"), init=init)) as driver:
        with pytest.raises(ProcessorError, match="in a punctuation at 12 ms"):
            driver.advance_wall_clock_time(12)
        store = driver.get_key_value_store("s")
        assert store is not None
        assert store.get("k") is None
        fragile[0] = False
        driver.restart()
        assert driver.wall_clock_time_ms == 12
        driver.advance_wall_clock_time(1)
        driver.advance_wall_clock_time(6)
        driver.advance_wall_clock_time(1)
        assert fired == [13, 20]


def test_what_has_expired_by_the_clock_does_not_show_again_after_a_failure() -> None:
    def init(context: ProcessorContext) -> None:
        context.schedule(100, WALL, fail)

    def fail(now_ms: int) -> None:
        raise Boom

    def put(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.state_store("s").put(record.key, record.value)

    with TopologyTestDriver(chain(put, KINDS["kv"].persistent("s").with_ttl(100), init=init)) as driver:
        input_of(driver).pipe_input("k", "v")
        with pytest.raises(ProcessorError):
            driver.advance_wall_clock_time(100)
        store = driver.get_key_value_store("s")
        assert store is not None
        # It was not deleted, but its time is over: the clock does not go back.
        assert store.get("k") is None
        assert [value for _, value, *_ in changelog_of(driver, "s")] == [b"v"]


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_what_no_serde_can_read_fails_or_is_skipped(policy: Any) -> None:
    with TopologyTestDriver(chain(value_serde=INT64), failures=FailureHandling(deserialization=policy)) as driver:
        raw = driver.create_input_topic("in", key_serde=TEXT, value_serde=BYTES)
        if policy == "fail":
            with pytest.raises(DeserializationError, match=r"source 'in' can't read record in-0 at offset 0"):
                raw.pipe_input("k", b"not a number")
            driver.restart()
        else:
            raw.pipe_input("k", b"not a number", timestamp_ms=50)
        raw.pipe_input("k", b"\0" * 8, timestamp_ms=3)
        assert driver.stream_time_ms == 3
        skipped = 1 if policy == "continue" else 0
        metrics = driver.metrics()
        assert (metrics["skipped-records-total"], metrics["dropped-records-total"]) == (skipped, skipped)
        assert output_of(driver, value_serde=INT64).read_values_to_list() == [0]


def test_a_failing_init_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(context: ProcessorContext) -> None:
        raise Boom

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(ProcessorError, match=r"'p' failed in init\(\)"):
        TopologyTestDriver(chain(forward, KINDS["kv"].persistent("s"), init=fail))
    assert os.listdir(temporary) == []
    # Where a directory is given, nothing holds it any longer.
    with pytest.raises(ProcessorError):
        TopologyTestDriver(chain(forward, KINDS["kv"].persistent("s"), init=fail), state_dir=tmp_path)
    with TopologyTestDriver(storing("kv"), state_dir=tmp_path) as driver:
        assert driver.get_key_value_store("s") is not None


def test_every_use_after_close_says_so() -> None:
    driver = TopologyTestDriver(storing("headers-kv"))
    topic, out = input_of(driver), output_of(driver)
    topic.pipe_input("k", "v")
    driver.close()
    driver.close()
    uses = [
        lambda: topic.pipe_input("k", "v"),
        lambda: topic.pipe_micro_batch([]),
        lambda: out.read_value(),
        lambda: out.is_empty(),
        lambda: out.read_records_to_list(),
        lambda: input_of(driver),
        lambda: output_of(driver),
        lambda: driver.advance_wall_clock_time(1),
        lambda: driver.get_state_store("s"),
        lambda: driver.get_key_value_store("s"),
        lambda: driver.get_all_state_stores(),
        lambda: driver.metrics(),
        lambda: driver.produced_topic_names(),
        lambda: driver.restart(),
        lambda: driver.stream_time_ms,
        lambda: driver.wall_clock_time_ms,
    ]
    for use in uses:
        with pytest.raises(DriverClosedError, match="the test driver is closed"):
            use()


def test_a_temporary_state_goes_with_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TopologyTestDriver(storing("kv")) as driver:
        input_of(driver).pipe_input("k", "v")
        (made,) = tmp_path.iterdir()
        assert (made / "test-application" / "0_0" / "rocksdb" / "s").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_processor_that_fails_to_close_shows_at_close_when_all_is_closed(tmp_path: Path) -> None:
    class Stuck(Processor):
        def process(self, record: Record[Any, Any]) -> None: ...

        def close(self) -> None:
            raise Boom

    topology = storing("kv")
    topology.add_processor("stuck", Stuck, ["in"])
    driver = TopologyTestDriver(topology, state_dir=tmp_path)
    input_of(driver).pipe_input("k", "v")
    with pytest.raises(ProcessorError, match=r"'stuck' failed in close\(\)"):
        driver.close()
    driver.close()
    with TopologyTestDriver(storing("kv"), state_dir=tmp_path) as after:
        store = after.get_key_value_store("s")
        assert store is not None
        assert store.get("k") == "v"


def test_nothing_can_be_piped_from_within() -> None:
    inner: list[Any] = []

    def pipe(context: ProcessorContext, record: Record[Any, Any]) -> None:
        inner[0].pipe_input("again", "x")

    with TopologyTestDriver(chain(pipe)) as driver:
        inner.append(input_of(driver))
        with pytest.raises(ProcessorError) as caught:
            inner[0].pipe_input("k", "v")
        assert isinstance(caught.value.__cause__, DriverError)
        assert "from within the topology" in str(caught.value)


def test_what_spark_refuses_is_refused() -> None:
    topology = Topology()
    with pytest.raises(TopologyError, match="no source"):
        TopologyTestDriver(topology)
    topology.add_source("in", "in", key_serde=TEXT, value_serde=Serdes.json())
    with pytest.raises(TopologyError, match="has no children"):
        TopologyTestDriver(topology)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"application_id": "a/b"}, "illegal name"),
        ({"initial_wall_clock_time_ms": -1}, "initial_wall_clock_time_ms"),
        ({"changelogs": {"unknown": []}}, "no store 'unknown'"),
        ({"changelogs": {"s": [TestRecord(b"k", b"v")]}}, "must have a timestamp"),
    ],
)
def test_illegal_options_are_refused(options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        TopologyTestDriver(storing("kv"), **options)
