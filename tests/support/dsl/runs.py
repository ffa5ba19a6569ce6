"""Programs of the DSL in a test driver, with records and outputs as short as they can be said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from statestore import Headers, Serdes
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.suppressed import EmitStrategy
from statestore.stores.iterator import Windowed
from statestore.testing import TopologyTestDriver

TEXT = Serdes.string()
Given = tuple[str | None, Any, int] | tuple[str | None, Any, int, str]
"""Key, value, timestamp, and the trace that its header says."""


def joined_in(windows: Any, stream: KStream, **options: Any) -> KTable:
    """The texts of each window, one behind the other."""
    return stream.group_by_key().windowed_by(windows).reduce(lambda one, other: one + other, **options)


def joined_when_closed_in(windows: Any, stream: KStream) -> KTable:
    """The same, put out when a window has ended, with the headers of all."""
    closed = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    return closed.reduce(lambda one, other: one + other, headers="append")


class DslRun:
    """A driver of a program with the topic "in", of text, and what came out at "out" and "late" so far."""

    def __init__(
        self, declare: Callable[[KStream], KTable | KStream], *, value_serde: Any = TEXT, state_dir: Path | None = None
    ) -> None:
        builder = StreamsBuilder()
        made = declare(builder.stream("in", key_serde=TEXT, value_serde=value_serde))
        out = made.to_stream() if isinstance(made, KTable) else made
        out.to("out", key_serde=SHOWN, value_serde=SHOWN)
        self.topology = builder.build()
        self.driver = TopologyTestDriver(self.topology, state_dir=state_dir)
        self._input = self.driver.create_input_topic("in", key_serde=TEXT, value_serde=value_serde)

    def __enter__(self) -> DslRun:
        return self

    def __exit__(self, *raised: object) -> None:
        self.driver.close()

    def pipe(self, *records: Given) -> list[str]:
        """Pipe records, and return what came out: "key value @timestamp trace"."""
        for key, value, timestamp_ms, *trace in records:
            self._input.pipe_input(
                key, value, timestamp_ms=timestamp_ms, headers=[("trace", t.encode()) for t in trace]
            )
        return self.outputs("out")

    def outputs(self, topic: str) -> list[str]:
        read = self.driver.create_output_topic(topic, key_serde=TEXT, value_serde=TEXT).read_records_to_list()
        return [" ".join([f"{each.key} {each.value} @{each.timestamp_ms}", *_traces(each.headers)]) for each in read]


def _traces(headers: Headers) -> Iterable[str]:
    return [(header.value or b"").decode() for header in headers]


def _shown(value: Any) -> bytes:
    return (f"{value.key}[{value.start_ms},{value.end_ms}]" if isinstance(value, Windowed) else str(value)).encode()


def _never(data: bytes) -> Any:
    raise NotImplementedError


SHOWN = Serdes.of("shown", _shown, _never)
