"""A processor that holds a batch's records back and hands those of a key over together, and that has timers.

What a user writes is behind `KeyedLogic`: so this module knows nothing of DataFrames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from statestore.errors import InputError, ProcessorError
from statestore.errors.readable import key_digest
from statestore.format.keys.due_key import TIMER_KEYS
from statestore.format.serde import Serde
from statestore.headers.record_headers import Headers
from statestore.operators.keyed_state import KeyScope
from statestore.operators.state_handle import (
    CollectingHandle,
    LiveHandle,
    StateDeclaration,
    StatefulProcessorHandle,
    StateKind,
    TimeMode,
    Timers,
    timer_store,
)
from statestore.processor.context import NO_FAULT_OF_USER_CODE, ProcessorContext, ShardClock
from statestore.processor.nodes import Operator, SinkNode, SourceNode
from statestore.processor.processor import Processor
from statestore.processor.punctuation import PunctuationType
from statestore.processor.record import Record, RecordMetadata
from statestore.stores.builder import PartStore

if TYPE_CHECKING:
    from statestore.connect.typed_headers import TypedHeaders

ROWS_HANDED_OVER: Final = 4_000
"""How many rows of a key are handed over in one piece."""
DEFAULT_HELD_ROWS_MAX: Final = 200_000
DEFAULT_HELD_BYTES_MAX: Final = 64 << 20
"""Of keys, values and headers as they came. Python's objects are larger: the number of rows bounds them."""

_TIMER_CLOCKS: Final[Mapping[TimeMode, str | None]] = {
    TimeMode.NONE: None,
    TimeMode.PROCESSING_TIME: "processing",
    TimeMode.EVENT_TIME: "event",
}


class Row(NamedTuple):
    """A record that was held back, without its key."""

    value: Any
    timestamp_ms: int
    topic: str
    partition: int
    offset: int
    headers: Headers


class Output(NamedTuple):
    """What user code puts out: `timestamp_ms`, `headers` and `topic` of None are the defaults."""

    key: Any
    value: Any
    timestamp_ms: int | None
    headers: Headers | None
    topic: str | None


class OutputRecord(Record[Any, Any]):
    """A record that knows the topic it goes to; None is the sink's default."""

    __slots__ = ("topic",)

    def __init__(self, key: Any, value: Any, timestamp_ms: int, headers: Headers, topic: str | None) -> None:
        super().__init__(key, value, timestamp_ms, headers)
        self.topic = topic


@dataclass(frozen=True)
class OutputTopic:
    """The topic of an OutputRecord, or the default. A sink's function that chooses one."""

    default: str

    def __call__(self, record: Record[Any, Any], metadata: RecordMetadata | None) -> str:
        """Return the topic."""
        return getattr(record, "topic", None) or self.default


class ExpiredTimer(NamedTuple):
    """A timer whose time has come. Spark's ExpiredTimerInfo."""

    expiry_time_ms: int
    """The time it was set for, in milliseconds since the epoch."""


class KeyContext(ShardClock):
    """What user code sees of the task while a key is processed. Spark's TimerValues, and more."""

    def __init__(self, context: ProcessorContext) -> None:
        super().__init__(context.shard, context._record_context)
        self._typed_headers = context.typed_headers

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the key's last row; None for a timer."""
        return self._record_context.metadata

    def typed_headers(self, headers: Headers, topic: str | None = None) -> TypedHeaders:
        """Return a row's headers as the query's header converter reads them, each when it is asked for.

        A topic of None is that of the key's last row. The converter is as in `ProcessorContext.typed_headers`.
        """
        return self._typed_headers(headers, topic=topic)


class KeyedLogic(Protocol):
    """What a user writes, in whatever form rows are handed to it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask for states."""

    def input_rows(self, key: Any, rows: Iterator[Sequence[Row]], context: KeyContext) -> Iterator[Output]:
        """Process the rows of a key, which come in pieces."""

    def expired_timer(self, key: Any, context: KeyContext, timer: ExpiredTimer) -> Iterator[Output]:
        """Process a timer of a key."""

    def close(self) -> None:
        """Let go of what `init` took."""


@dataclass(frozen=True)
class PerKeyPlan:
    """What it takes to make the processor. Travels to the executors."""

    make_logic: Callable[[], KeyedLogic]
    key_serde: Serde[Any]
    declared: Mapping[str, StateDeclaration]
    time_mode: TimeMode
    timers: str | None
    """The name of the store of timers; None if there are none."""
    timer_resolution_ms: int
    held_rows_max: int
    held_bytes_max: int

    def __call__(self) -> Processor:
        """Return a new processor."""
        return PerKeyProcessor(self)


class PerKeyProcessor(Processor):
    """Holds records back until the batch ends, then hands them over key by key, in the order of first appearance.

    Within a key their order is kept. If there are more than `held_rows_max`, or they have more than `held_bytes_max`,
    they are handed over before the end, so that a key may be called more than once in a batch.
    """

    def __init__(self, plan: PerKeyPlan) -> None:
        self._plan = plan
        self._logic = plan.make_logic()
        self._key_bytes = plan.key_serde.serialize
        self._held: dict[bytes, tuple[Any, list[Row]]] = {}
        self._held_rows = self._held_bytes = 0

    def init(self, context: ProcessorContext) -> None:
        """Run the logic's `init` with a handle on the task's stores."""
        plan = self._plan
        self._context = context
        self._key_context = KeyContext(context)
        self._scope: KeyScope[Any] = KeyScope(plan.key_serde, context)
        self._timers = None if plan.timers is None else Timers(context.state_store(plan.timers))
        handle = LiveHandle(self._scope, plan.time_mode, plan.declared, context.state_store, self._timers)
        self._logic.init(handle)
        handle.leave_init()
        if plan.time_mode is TimeMode.PROCESSING_TIME:
            context.schedule(plan.timer_resolution_ms, PunctuationType.WALL_CLOCK_TIME, self._fire)

    def process(self, record: Record[Any, Any]) -> None:
        """Hold the record back."""
        if record.key is None:
            raise InputError(
                "a record without a key can't be processed by key. Filter such records out, or give them a key"
            )
        # What a processor above forwards in a punctuation comes from no topic.
        metadata = self._context.record_metadata or RecordMetadata("", -1, -1)
        key_bytes = self._key_bytes(record.key)
        row = Row(record.value, record.timestamp_ms, *metadata, record.headers.copy())
        held = self._held.get(key_bytes)
        if held is None:
            self._held[key_bytes] = (record.key, [row])
        else:
            held[1].append(row)
        self._held_rows += 1
        self._held_bytes += self._context.record_size_bytes
        if self._held_rows >= self._plan.held_rows_max or self._held_bytes >= self._plan.held_bytes_max:
            self._hand_over()

    def finish_batch(self) -> None:
        """Hand over what was held back, then fire the timers that stream time makes due."""
        self._hand_over()
        if self._plan.time_mode is TimeMode.EVENT_TIME:
            self._fire(self._context.current_stream_time_ms)

    def close(self) -> None:
        """Close the logic."""
        self._logic.close()

    def _hand_over(self) -> None:
        held, self._held = self._held, {}
        self._held_rows = self._held_bytes = 0
        while held:
            key_bytes = next(iter(held))
            key, rows = held.pop(key_bytes)  # frees its rows once they are processed
            last = rows[-1]
            metadata = RecordMetadata(last.topic, last.partition, last.offset) if last.topic else None
            current = Record.adopt(key, last.value, last.timestamp_ms, last.headers)
            pieces = (rows[start : start + ROWS_HANDED_OVER] for start in range(0, len(rows), ROWS_HANDED_OVER))
            call = partial(self._logic.input_rows, key, pieces, self._key_context)
            self._run("handle_input_rows()", key_bytes, current, metadata, call)

    def _fire(self, now_ms: int) -> None:
        timers = self._timers
        assert timers is not None  # the time mode is not NONE
        # As they are now: a timer that a timer sets waits for the next batch, even if it is due.
        for time_ms, key_bytes in timers.due(now_ms):
            if not timers.delete(key_bytes, time_ms):
                continue  # a timer that fired before deleted it
            key = self._plan.key_serde.deserialize(key_bytes)
            current = Record.adopt(key, None, time_ms, Headers())
            call = partial(self._logic.expired_timer, key, self._key_context, ExpiredTimer(time_ms))
            self._run(f"handle_expired_timer() at {time_ms} ms", key_bytes, current, None, call)

    def _run(
        self,
        doing: str,
        key_bytes: bytes,
        current: Record[Any, Any],
        metadata: RecordMetadata | None,
        call: Callable[[], Iterator[Output]],
    ) -> None:
        """Run user code for a key and forward its output; `current` is the record that output and state belong to."""
        context, key = self._context, current.key
        with context.resumed(current, metadata), self._scope.of(key):
            try:
                for output in call():
                    context.forward(_forwarded(output, current))
            except (ProcessorError, *NO_FAULT_OF_USER_CODE):
                raise
            except Exception as cause:
                place = {} if metadata is None else metadata._asdict()
                facts = {"key_digest": key_digest(key_bytes), "key_bytes": len(key_bytes)}
                facts["timestamp_ms"] = current.timestamp_ms
                raise ProcessorError(node=context.node, cause=cause, doing=f"in {doing}", **place, **facts) from cause


def _forwarded(output: Output, current: Record[Any, Any]) -> OutputRecord:
    timestamp_ms = current.timestamp_ms if output.timestamp_ms is None else output.timestamp_ms
    headers = current.headers if output.headers is None else output.headers
    return OutputRecord(output.key, output.value, timestamp_ms, headers, output.topic)


def per_key_operator(
    make_logic: Callable[[], KeyedLogic],
    *,
    topics: str | Sequence[str] | None,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    output_topic: str,
    output_key_serde: Serde[Any] | None,
    output_value_serde: Serde[Any] | None,
    time_mode: str,
    timer_resolution_ms: int,
    held_rows_max: int,
    held_bytes_max: int,
    name: str,
    persistent: bool,
) -> Operator:
    """Return source -> processor -> sink, with a store for each state that the logic's `init` asks for."""
    mode = _time_mode(time_mode)
    for parameter, value in (
        ("timer_resolution_ms", timer_resolution_ms),
        ("held_rows_max", held_rows_max),
        ("held_bytes_max", held_bytes_max),
    ):
        if type(value) is not int or value < 1:
            raise ValueError(f"{parameter} must be a whole number, 1 or more, got {value!r}")
    if not output_topic or not isinstance(output_topic, str):
        raise ValueError(f"output_topic must be a name, not {output_topic!r}")
    declared = _state_declarations(make_logic, key_serde, mode, persistent)
    # Nothing says what kind of state a deleted one was.
    kinds = ((state.builder, state.kind) for state in declared.values())
    stores = [PartStore(builder, None if kind is StateKind.DELETED else kind.value) for builder, kind in kinds]
    timers = None if mode is TimeMode.NONE else f"{name}-timers"
    if timers is not None:
        stores.append(PartStore(timer_store(timers, persistent=persistent), TIMER_KEYS))
    read = topics if topics is None or isinstance(topics, str) else tuple(topics)
    return Operator(
        "per key",
        name,
        PerKeyPlan(make_logic, key_serde, declared, mode, timers, timer_resolution_ms, held_rows_max, held_bytes_max),
        tuple(stores),
        SourceNode(f"{name}-source", (read,) if isinstance(read, str) else read, key_serde, value_serde),
        sink=SinkNode(
            f"{name}-sink", OutputTopic(output_topic), (name,), output_key_serde or key_serde, output_value_serde
        ),
        timer_clock=_TIMER_CLOCKS[mode],
    )


def _state_declarations(
    make_logic: Callable[[], KeyedLogic], key_serde: Serde[Any], time_mode: TimeMode, persistent: bool
) -> dict[str, StateDeclaration]:
    """Run `init` once to see what states it asks for."""
    handle = CollectingHandle(key_serde, time_mode, persistent=persistent)
    logic = make_logic()
    try:
        logic.init(handle)
    except BaseException:
        with suppress(Exception):  # of what was half made; the first failure is the one to see
            logic.close()
        raise
    handle.leave_init()
    logic.close()
    return handle.declared


def _time_mode(time_mode: str) -> TimeMode:
    try:
        return TimeMode(time_mode)
    except ValueError:
        choices = ", ".join(mode.value for mode in TimeMode)
        raise ValueError(f"time_mode must be one of {choices}, not {time_mode!r}") from None
