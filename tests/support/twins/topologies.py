"""The topologies of tests/java/RunTopologies.java, said in Python, by name; see there for what each is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore import (
    Headers,
    ProcessorContext,
    PunctuationType,
    Record,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
)
from statestore.processor.record import RecordMetadata
from tests.support.twins.kit import (
    STRING,
    Init,
    Kit,
    describe,
    each,
    forward_all,
    passing,
    put,
    sink,
    source,
    text,
    with_global_store,
)
from tests.support.twins.store_topologies import cached, counts, running_total, sessions, tenant_keys, versions, windows
from tests.support.twins.wrong_topologies import WRONG_TOPOLOGIES

STREAM_TIME, WALL_CLOCK_TIME = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def stateless(kit: Kit) -> Topology:
    def tag(context: ProcessorContext, record: Record[Any, Any]) -> None:
        record.headers.remove("drop").add("tag", text(record.key).encode())
        context.forward(record)
        early = record.with_key("early")
        record.headers.add("late", None)
        context.forward(early)
        context.forward(record.with_value(text(record.value) + "!").with_timestamp_ms(record.timestamp_ms + 1))
        context.forward(record.with_headers(Headers()).with_key("bare"))

    def first(context: ProcessorContext, record: Record[Any, Any]) -> None:
        record.headers.add("first", b"1")
        context.forward(record)

    topology = kit.topology("in").add_processor("tag", each(tag), ["source"])
    topology.add_processor("first", each(first), ["tag"]).add_processor("second", passing(), ["tag"])
    sink(topology, "sink-first", "out-first", "first")
    sink(topology, "sink-second", "out-second", "second")
    return sink(topology, "sink-direct", "out-direct", "tag")


def stream_punctuation(kit: Kit) -> Topology:
    def init(context: ProcessorContext) -> None:
        def tick(now_ms: int) -> None:
            now = text(now_ms)
            put(context, "plain", "tick", now)
            put(context, "timestamped", "tick", ValueAndTimestamp.make(now, 3))
            context.forward(Record("tick", describe(context), now_ms))
            headers = Headers([("now", now.encode())])
            put(context, "headers", "tick", ValueTimestampHeaders.make(now, now_ms, headers))
            context.forward(Record("own", now, 7, Headers([("own", b"1")])))
            put(context, "plain", "tick", None)
            put(context, "headers", "tick", None)

        def anchored(now_ms: int) -> None:
            context.forward(Record("anchored", text(now_ms), now_ms))

        context.schedule(10, STREAM_TIME, tick)
        context.schedule(25, STREAM_TIME, anchored, start_ms=7)

    def process(context: ProcessorContext, record: Record[Any, Any]) -> None:
        put(context, "plain", "seen", record.value)
        context.forward(record)

    def child(context: ProcessorContext, record: Record[Any, Any]) -> None:
        put(context, "plain", "child", record.value)
        put(context, "headers", "child", None)
        context.forward(record)

    topology = kit.topology("in").add_processor("clock", each(process, init), ["source"])
    topology.add_processor("child", each(child), ["clock"])
    topology.add_state_store(kit.plain("plain"), "clock", "child")
    topology.add_state_store(kit.timestamped("timestamped"), "clock")
    topology.add_state_store(kit.with_headers("headers"), "clock", "child")
    return sink(topology, "sink", "out", "child")


def wall_clock_punctuation(kit: Kit) -> Topology:
    def init(context: ProcessorContext) -> None:
        calls: list[int] = []

        def tick(now_ms: int) -> None:
            put(context, "plain", "tick", text(now_ms))
            context.forward(Record("tick", describe(context), now_ms))

        def ending(now_ms: int) -> None:
            calls.append(now_ms)
            context.forward(Record("ending", text(len(calls)), 5))
            if len(calls) == 3:
                schedule.cancel()

        def forward(key: str) -> Callable[[int], None]:
            return lambda now_ms: context.forward(Record(key, text(now_ms), now_ms))

        context.schedule(10, WALL_CLOCK_TIME, tick)
        context.schedule(20, WALL_CLOCK_TIME, forward("anchored"), start_ms=1004)
        schedule = context.schedule(25, WALL_CLOCK_TIME, ending, start_ms=1006)
        context.schedule(1, WALL_CLOCK_TIME, forward("never")).cancel()

    def process(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_value(describe(context)))

    topology = kit.topology("in").add_processor("clock", each(process, init), ["source"])
    topology.add_state_store(kit.plain("plain"), "clock")
    return sink(topology, "sink", "out", "clock")


def punctuations_due_together(kit: Kit) -> Topology:
    def scheduling(name: str) -> Init:
        def init(context: ProcessorContext) -> None:
            def forward(key: str, value: str) -> Callable[[int], None]:
                return lambda now_ms: context.forward(Record(key, value, now_ms))

            for number in range(3):
                context.schedule(10, WALL_CLOCK_TIME, forward("wall", f"{name}.{number}"))
                context.schedule(10, STREAM_TIME, forward("stream", f"{name}.{number}"))

        return init

    topology = kit.topology("in")
    parent = "source"
    for name in ("p0", "p1", "p2"):
        topology.add_processor(name, each(forward_all, scheduling(name)), [parent])
        parent = name
    return sink(topology, "sink", "out", "p2")


class Chosen:
    """Chooses the topic of a sink."""

    def __call__(self, record: Record[Any, Any], metadata: RecordMetadata | None) -> str:
        assert metadata is not None
        return f"chosen-{metadata.topic}{metadata.offset % 2}-{text(record.value)}"


def routing(kit: Kit) -> Topology:
    def route(context: ProcessorContext, record: Record[Any, Any]) -> None:
        value = text(record.value)
        if value.startswith("l"):
            context.forward(record, "left")
        elif value.startswith("r"):
            context.forward(record.with_timestamp_ms(record.timestamp_ms + 5), "right")
        elif value.startswith("c"):
            context.forward(record.with_headers(Headers([("chosen", b"1")])), "chosen")
        else:
            context.forward(record)

    def left(context: ProcessorContext, record: Record[Any, Any]) -> None:
        record.headers.add("left", None)
        context.forward(record)

    topology = kit.topology("in")
    sink(topology, "copy", "out-copy", "source")
    topology.add_processor("route", each(route), ["source"])
    topology.add_processor("right", each(lambda context, record: context.forward(record.with_value("R"))), ["route"])
    topology.add_processor("left", each(left), ["route"])
    sink(topology, "both", "out-both", "right", "left")
    return sink(topology, "chosen", Chosen(), "route", "left")


def global_store(kit: Kit) -> Topology:
    def join(context: ProcessorContext, record: Record[Any, Any]) -> None:
        held = None if record.key is None else context.state_store("table").get(record.key)
        found = "null" if held is None else f"{held.value}@{held.timestamp_ms}"
        joined = record.with_key(describe(context)).with_value(f"{text(record.value)}+{found}")
        context.forward(joined, "sink")
        if text(record.value).startswith("w"):
            context.forward(record, "write")

    def keep(context: ProcessorContext, record: Record[Any, Any]) -> None:
        value = None if record.value is None else f"{record.value} {describe(context, stream_time=False)}"
        put(context, "table", record.key, ValueTimestampHeaders.make(value, record.timestamp_ms, record.headers))

    topology = kit.topology("in").add_processor("join", each(join), ["source"])
    sink(topology, "sink", "out", "join")
    sink(topology, "write", "table-topic", "join")
    return topology.add_global_store(
        kit.with_headers("table"),
        "table-source",
        "table-topic",
        "table-processor",
        each(keep),
        key_serde=STRING,
        value_serde=STRING,
    )


def linked(kit: Kit) -> Topology:
    def split(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_key(text(record.key) + "1"))
        context.forward(record.with_key(text(record.key) + "2").with_timestamp_ms(record.timestamp_ms + 100))

    def init(context: ProcessorContext) -> None:
        context.schedule(50, STREAM_TIME, lambda now_ms: context.forward(Record("tick", describe(context), now_ms)))

    def follow(context: ProcessorContext, record: Record[Any, Any]) -> None:
        held = ValueTimestampHeaders.make(describe(context), record.timestamp_ms, record.headers)
        put(context, "seen", record.key, held)
        context.forward(record.with_value(describe(context)))

    topology = kit.topology("in").add_processor("split", each(split), ["source"])
    sink(topology, "to-middle", "middle", "split")
    source(topology, "from-middle", "middle").add_processor("follow", each(follow, init), ["from-middle"])
    topology.add_state_store(kit.with_headers("seen"), "follow")
    return sink(topology, "sink", "out", "follow")


def fan_out_to_sources(kit: Kit) -> Topology:
    def scatter(context: ProcessorContext, record: Record[Any, Any]) -> None:
        value = text(record.value)
        for at in range(0, len(value) - 1, 2):
            if value[at] in "abc":
                sent = record.with_value(value[at : at + 2]).with_timestamp_ms(ord(value[at + 1]))
                context.forward(sent, value[at])

    def gather(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_value(f"{text(record.value)} {describe(context)}"))

    topology = kit.topology("in").add_processor("scatter", each(scatter), ["source"])
    for name in "abc":
        sink(topology, name, f"topic-{name}", "scatter")
        source(topology, f"from-{name}", f"topic-{name}")
    topology.add_processor("gather", each(gather), ["from-a", "from-b", "from-c"])
    return sink(topology, "sink", "out", "gather")


def shared_store(kit: Kit) -> Topology:
    def store(context: ProcessorContext, record: Record[Any, Any]) -> None:
        put(context, "shared", record.key, record.value)
        context.forward(record)

    def read(context: ProcessorContext, record: Record[Any, Any]) -> None:
        held = text(context.state_store("shared").get(record.key))
        context.forward(record.with_value(f"{held} {context.current_stream_time_ms}"))

    topology = source(kit.topology("left"), "other", "right").add_processor("put", each(store), ["source"])
    topology.add_processor("get", each(read), ["other"]).add_state_store(kit.plain("shared"), "get", "put")
    sink(topology, "sink-get", "out", "get")
    return sink(topology, "sink-put", "out", "put")


def metadata(kit: Kit) -> Topology:
    def init(context: ProcessorContext) -> None:
        def forward(key: str) -> Callable[[int], None]:
            return lambda now_ms: context.forward(Record(key, describe(context), now_ms))

        context.schedule(20, STREAM_TIME, forward("stream"))
        context.schedule(20, WALL_CLOCK_TIME, forward("wall"))

    def look(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_key(f"{describe(context)} {text(record.key)}"))

    def below(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_value(f"{text(record.value)} {describe(context)}"))

    topology = kit.topology("in", "also-in").add_processor("look", each(look, init), ["source"])
    topology.add_processor("below", each(below), ["look"])
    return sink(topology, "sink", "out", "below")


def failing(kit: Kit) -> Topology:
    def above(context: ProcessorContext, record: Record[Any, Any]) -> None:
        put(context, "plain", text(record.key), record.value)
        context.forward(record)
        put(context, "plain", "after-" + text(record.key), record.value)

    def below(context: ProcessorContext, record: Record[Any, Any]) -> None:
        if record.key == "raise":
            raise RuntimeError("raised")
        if record.key == "store":
            context.state_store("plain")
        elif record.key == "child":
            context.forward(record, "nobody")
        elif record.key == "time":
            context.forward(record.with_timestamp_ms(-2))
        elif record.key == "null":
            put(context, "own", None, record.value)
        else:
            context.forward(record)

    topology = kit.topology("in").add_processor("above", each(above), ["source"])
    topology.add_processor("below", each(below), ["above"])
    topology.add_state_store(kit.plain("plain"), "above").add_state_store(kit.plain("own"), "below")
    return sink(topology, "sink", "out", "below")


def failing_init(kit: Kit) -> Topology:
    def init(context: ProcessorContext) -> None:
        raise RuntimeError("raised")

    topology = kit.topology("in").add_processor("first", each(lambda context, record: None, init), ["source"])
    return sink(topology, "sink", "out", "first")


def failing_punctuator(kit: Kit) -> Topology:
    def init(context: ProcessorContext) -> None:
        def on_stream_time(now_ms: int) -> None:
            if now_ms >= 20:
                raise RuntimeError(f"raised at {now_ms}")

        def on_the_wall(now_ms: int) -> None:
            raise RuntimeError(f"raised on the wall at {now_ms}")

        context.schedule(10, STREAM_TIME, on_stream_time)
        context.schedule(15, WALL_CLOCK_TIME, on_the_wall)

    topology = kit.topology("in").add_processor("clock", each(forward_all, init), ["source"])
    return sink(topology, "sink", "out", "clock")


def many_nodes(kit: Kit) -> Topology:
    topology = source(kit.topology("zeta", "b", "a"), "s2", "t2")
    topology.add_processor("zz", passing(), ["source"]).add_processor("aa", passing(), ["source", "s2"])
    topology.add_processor("mm", passing(), ["zz", "aa"])
    sink(topology, "k2", "out2", "mm", "aa")
    sink(topology, "k1", "out1", "mm")
    topology.add_state_store(kit.plain("st2"), "mm", "zz").add_state_store(kit.plain("st1"), "mm")
    topology.add_state_store(kit.plain("another"), "mm")
    source(topology, "s3", "out1").add_processor("p3", passing(), ["s3"])
    source(topology, "s4", "t4").add_processor("p4", passing(), ["s4"])
    topology.add_state_store(kit.plain("shared"), "p3", "p4")
    with_global_store(topology, "global", "global-source", "global-topic", "global-processor")
    return source(topology, "s5", "t5").add_processor("p5", passing(), ["s5"])


TOPOLOGIES: dict[str, Callable[[Kit], Topology]] = {
    "stateless": stateless,
    "running-total": running_total,
    "counts": counts,
    "windows": windows,
    "sessions": sessions,
    "versions": versions,
    "tenant-keys": tenant_keys,
    "stream-punctuation": stream_punctuation,
    "wall-clock-punctuation": wall_clock_punctuation,
    "punctuations-due-together": punctuations_due_together,
    "global-store": global_store,
    "linked": linked,
    "fan-out-to-sources": fan_out_to_sources,
    "shared-store": shared_store,
    "routing": routing,
    "cached": cached,
    "metadata": metadata,
    "failing": failing,
    "failing-init": failing_init,
    "failing-punctuator": failing_punctuator,
    "many-nodes": many_nodes,
    **WRONG_TOPOLOGIES,
}
