"""The rehearsal before a query starts: what it finds out, what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import pytest

from statestore import Processor, ProcessorContext, PunctuationType, Serdes, Stores, Topology
from statestore.errors import ProcessorError, TopologyError
from statestore.processor.rehearsal import uses_wall_clock

BYTES = Serdes.bytes()


def topology(*processors: type[Processor]) -> Topology:
    made = Topology()
    made.add_source("in", key_serde=BYTES, value_serde=BYTES)
    for number, processor in enumerate(processors):
        made.add_processor(f"p{number}", processor, ["in"])
    made.add_state_store(
        Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), BYTES, BYTES).with_caching_enabled(),
        "p0",
    )
    made.add_state_store(Stores.window_store_builder(Stores.persistent_window_store("w", 1000, 10), BYTES, BYTES), "p0")
    return made


class Plain(Processor):
    """Reads and writes its store in init, and counts how often it is closed."""

    closed = 0

    def init(self, context: ProcessorContext) -> None:
        store = context.state_store("s")
        assert store.get(b"k") is None
        store.put(b"k", b"v")
        context.schedule(10, PunctuationType.STREAM_TIME, lambda now_ms: None)

    def close(self) -> None:
        type(self).closed += 1


class OnTheWallClock(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda now_ms: None)


class Cancelled(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda now_ms: None).cancel()


class AsksForAnothersStore(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.state_store("s")


class Fails(Processor):
    def init(self, context: ProcessorContext) -> None:
        raise OSError("no model file")


@pytest.mark.parametrize(
    ("processors", "expected"),
    [((Plain,), False), ((Plain, OnTheWallClock), True), ((Plain, Cancelled), False), ((OnTheWallClock,), True)],
)
def test_it_finds_out_who_schedules_by_the_wall_clock(processors: tuple[type[Processor], ...], expected: bool) -> None:
    assert uses_wall_clock(topology(*processors)) is expected


def test_each_time_begins_with_empty_stores_and_closes_the_processors() -> None:
    made, before = topology(Plain), Plain.closed
    uses_wall_clock(made)
    uses_wall_clock(made)
    assert Plain.closed == before + 2


def test_a_store_that_is_not_attached_shows_before_the_query_starts() -> None:
    before = Plain.closed
    with pytest.raises(TopologyError, match=r"processor 'p1' asked for the state store 's', which is not attached"):
        uses_wall_clock(topology(Plain, AsksForAnothersStore))
    assert Plain.closed == before + 1


def test_what_init_raises_is_told_with_the_node() -> None:
    with pytest.raises(ProcessorError, match=r"node 'p1' failed in init\(\): OSError: no model file") as caught:
        uses_wall_clock(topology(Plain, Fails))
    assert isinstance(caught.value.__cause__, OSError)
