"""The topologies of tests/java/RunTopologies.java that are about one kind of store; see there for what each is for."""

from __future__ import annotations

from typing import Any

from statestore import (
    AggregationWithHeaders,
    Headers,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from tests.support.twins.kit import INT64, WINDOW_MS, Kit, each, put, sink, text

GAP_MS = 5_000


def running_total(kit: Kit) -> Topology:
    def total_up(context: ProcessorContext, record: Record[Any, Any]) -> None:
        totals = context.state_store("totals")
        if record.value is None:
            totals.delete(record.key)
            context.forward(record)
            return
        before = totals.get(record.key)
        total = (0 if before is None else before.value) + len(record.value)
        timestamp_ms = record.timestamp_ms if before is None else max(before.timestamp_ms, record.timestamp_ms)
        headers = before.headers if before is not None and before.headers else record.headers
        totals.put(record.key, ValueTimestampHeaders.make(total, timestamp_ms, headers))
        record.headers.add("total", text(total).encode())
        context.forward(record.with_value(text(total)).with_timestamp_ms(timestamp_ms))

    topology = kit.topology("in").add_processor("total", each(total_up), ["source"])
    topology.add_state_store(kit.with_headers("totals", INT64), "total")
    return sink(topology, "sink", "out", "total")


def counts(kit: Kit) -> Topology:
    def count(context: ProcessorContext, record: Record[Any, Any]) -> None:
        plain, timestamped = context.state_store("plain"), context.state_store("timestamped")
        key, value = record.key, text(record.value)
        if value == "null":
            plain.put(key, None)
            timestamped.put(key, None)
        elif value.startswith("d"):
            context.forward(record.with_value(text(plain.delete(key))))
            timestamped.delete(key)
        elif value.startswith("i"):
            plain.put_if_absent(key, 100)
            timestamped.put_if_absent(key, ValueAndTimestamp.make(100, record.timestamp_ms + 7))
        else:
            plain.put(key, (plain.get(key) or 0) + 1)
            record.headers.add("counted", None)
            held = timestamped.get(key)
            timestamped.put(
                key, ValueAndTimestamp.make(1 if held is None else held.value + 1, record.timestamp_ms // 2)
            )
        context.forward(record.with_timestamp_ms(record.timestamp_ms + 1000))

    def child(context: ProcessorContext, record: Record[Any, Any]) -> None:
        put(context, "plain", "child-" + text(record.key), len(text(record.value)))
        context.forward(record.with_value(text(context.state_store("plain").get(text(record.key)))))

    topology = kit.topology("in").add_processor("count", each(count), ["source"])
    topology.add_processor("child", each(child), ["count"])
    topology.add_state_store(kit.plain("plain", INT64), "count", "child")
    topology.add_state_store(kit.timestamped("timestamped", INT64), "count")
    return sink(topology, "sink", "out", "child")


def windows(kit: Kit) -> Topology:
    def join(context: ProcessorContext, record: Record[Any, Any]) -> None:
        plain, timed, headed = (context.state_store(name) for name in ("plain", "timestamped", "headers"))
        key, time_ms = record.key, record.timestamp_ms
        start_ms = time_ms - time_ms % WINDOW_MS
        if record.value is None:
            for store in (plain, timed, headed):
                store.put(key, None, start_ms)
        else:
            held = headed.fetch(key, start_ms)
            joined = ("" if held is None else held.value) + record.value
            plain.put(key, joined, start_ms)
            timed.put(key, ValueAndTimestamp.make(joined, time_ms + 3), start_ms)
            headed.put(key, ValueTimestampHeaders.make(joined, time_ms, record.headers), start_ms)
        for found_ms, held in headed.fetch(key, max(0, start_ms - 20_000), start_ms):
            context.forward(Record(key, f"{found_ms}={held.value}", held.timestamp_ms, held.headers))

    topology = kit.topology("in").add_processor("join", each(join), ["source"])
    topology.add_state_store(kit.window("plain"), "join")
    topology.add_state_store(kit.timestamped_window("timestamped"), "join")
    topology.add_state_store(kit.window_with_headers("headers"), "join")
    return sink(topology, "sink", "out", "join")


def sessions(kit: Kit) -> Topology:
    def merge(context: ProcessorContext, record: Record[Any, Any]) -> None:
        plain, headed = context.state_store("plain"), context.state_store("headers")
        key, time_ms = record.key, record.timestamp_ms
        found = list(headed.find_sessions(key, max(0, time_ms - GAP_MS), time_ms + GAP_MS))
        merged = "".join(held.aggregation for _, held in found)
        start_ms = min([time_ms, *(session.start_ms for session, _ in found)])
        end_ms = max([time_ms, *(session.end_ms for session, _ in found)])
        for session, _ in found:
            headed.remove(session)
            plain.remove(session)
            context.forward(Record(key, None, session.end_ms, record.headers))
        if record.value is not None:
            session = Windowed(key, start_ms, end_ms)
            headed.put(session, AggregationWithHeaders.make(merged + record.value, record.headers))
            plain.put(session, merged + record.value)
            value = f"{start_ms}-{end_ms}:{merged}{record.value}"
            context.forward(record.with_value(value).with_timestamp_ms(end_ms))

    topology = kit.topology("in").add_processor("merge", each(merge), ["source"])
    topology.add_state_store(kit.session("plain"), "merge")
    topology.add_state_store(kit.session_with_headers("headers"), "merge")
    return sink(topology, "sink", "out", "merge")


def _tenant(headers: Headers) -> str:
    found = headers.last_header("tenant")
    return "nobody" if found is None else (found.value or b"").decode()


def _of_tenant(topic: str | None, headers: Headers, key: str) -> bytes:
    headers.add("keyed", key.encode())
    return f"{_tenant(headers)}/{key}".encode()


TENANT_KEYS = Serdes.of_topics(
    "tenant keys", _of_tenant, lambda topic, headers, data: f"{data.decode()} of {_tenant(headers)}"
)


def tenant_keys(kit: Kit) -> Topology:
    def keep(context: ProcessorContext, record: Record[Any, Any]) -> None:
        plain, windows, sessions = (context.state_store(name) for name in ("plain", "windows", "sessions"))
        key, value, session = record.key, record.value, Windowed(record.key, 0, 5)
        found = [
            text(ValueTimestampHeaders.get_value_or_null(held)) for held in (plain.get(key), windows.fetch(key, 0))
        ]
        found.append(text(AggregationWithHeaders.get_aggregation_or_null(sessions.fetch_session(key, 0, 5))))
        found += [name for name, _ in plain.range(key, key)]
        if value is None:
            found.append(text(ValueTimestampHeaders.get_value_or_null(plain.delete(key))))
            windows.put(key, None, 0)
            sessions.remove(session)
        else:
            plain.put_if_absent(f"absent-{key}", ValueTimestampHeaders.make("absent", 7, record.headers))
            held = ValueTimestampHeaders.make(value, record.timestamp_ms, record.headers)
            plain.put(key, held)
            windows.put(key, held, 0)
            sessions.put(session, AggregationWithHeaders.make(value, record.headers))
        context.forward(record.with_value(",".join(found)))

    topology = kit.topology("in").add_processor("keep", each(keep), ["source"])
    topology.add_state_store(kit.with_headers("plain", keys=TENANT_KEYS), "keep")
    topology.add_state_store(kit.window_with_headers("windows", TENANT_KEYS), "keep")
    topology.add_state_store(kit.session_with_headers("sessions", TENANT_KEYS), "keep")
    return sink(topology, "sink", "out", "keep")


def versions(kit: Kit) -> Topology:
    def said(held: Any) -> str:
        return "none" if held is None else f"{held.value}@{held.timestamp_ms}"

    def remember(context: ProcessorContext, record: Record[Any, Any]) -> None:
        store = context.state_store("versions")
        if record.value == "d":
            store.delete(record.key, record.timestamp_ms)
        else:
            store.put(record.key, record.value, record.timestamp_ms)
        before = store.get(record.key, max(0, record.timestamp_ms - 10))
        context.forward(record.with_value(f"{said(before)},{said(store.get(record.key))}"))

    topology = kit.topology("in").add_processor("remember", each(remember), ["source"])
    topology.add_state_store(kit.versioned("versions"), "remember")
    return sink(topology, "sink", "out", "remember")


def cached(kit: Kit) -> Topology:
    def init(context: ProcessorContext) -> None:
        def twice(now_ms: int) -> None:
            put(context, "plain", "wall", text(now_ms))
            put(context, "plain", "wall", f"last {now_ms}")

        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, twice)

    def write(context: ProcessorContext, record: Record[Any, Any]) -> None:
        headed, window, session = (context.state_store(name) for name in ("headers", "window", "session"))
        key, value, time_ms = record.key, record.value, record.timestamp_ms
        put(context, "plain", key, "first")
        put(context, "plain", "other", value)
        context.commit()
        put(context, "plain", key, value)
        headed.put(key, ValueTimestampHeaders.make("first", 1, Headers()))
        headed.put("z", ValueTimestampHeaders.make("z", 2, record.headers))
        if value is None:
            headed.delete(key)
        else:
            headed.put(key, ValueTimestampHeaders.make(value, time_ms, record.headers))
        start_ms = time_ms - time_ms % WINDOW_MS
        window.put("w", ValueTimestampHeaders.make("first", 1, record.headers), start_ms)
        window.put(key, ValueTimestampHeaders.make(value, time_ms, record.headers), start_ms)
        window.put("w", ValueTimestampHeaders.make("last", 2, Headers()), start_ms)
        span = Windowed(key, time_ms, time_ms + 5)
        session.put(span, AggregationWithHeaders.make("first", record.headers))
        record.headers.add("late", b"1")
        session.put(span, AggregationWithHeaders.make(value, record.headers))
        held = headed.get(key)
        held_value = "none" if held is None else held.value
        context.forward(record.with_timestamp_ms(time_ms + 50).with_value(held_value))
        put(context, "plain", "after", "x")

    topology = kit.topology("in").add_processor("write", each(write, init), ["source"])
    topology.add_state_store(kit.plain("plain").with_caching_enabled(), "write")
    topology.add_state_store(kit.with_headers("headers").with_caching_enabled(), "write")
    topology.add_state_store(kit.window_with_headers("window").with_caching_enabled(), "write")
    topology.add_state_store(kit.session_with_headers("session").with_caching_enabled(), "write")
    return sink(topology, "sink", "out", "write")
