"""How records pass the interceptors of one side of a chain, by themselves or in columns.

Where columns can't be used, or fail, their rows go through the hooks for single records: both do the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from statestore.errors import DataException, ProcessorError, RecordRefusedError, ServiceUnavailableError
from statestore.errors.readable import content_facts, record_facts, shape_of
from statestore.format.binary_columns import row_objects
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.records import ConsumerRecord, ProducerRecord
from statestore.headers.topic_columns import SourceFields
from statestore.interception.failures import Refusal
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, Interceptor, defines

PART_BYTES: Final = 64 << 20
"""Records in columns go on in parts of about so many bytes of values: small values may expand to large ones."""

PLACE: Final = ["topic", "partition", "offset"]
"""The columns that say where a record comes from."""

_place_and_key: Final = attrgetter(*PLACE, "key")

PassedRecord = TypeVar("PassedRecord", bound="ConsumerRecord[Any, Any] | ProducerRecord[Any, Any]")

Refuse: TypeAlias = Callable[[PassedRecord, str, Refusal], None]


class _Step(NamedTuple):
    """One interceptor, and its hooks for this side."""

    name: str
    record: Callable[[Any], Iterable[Any]] | None
    columns: Callable[[RecordColumns], RecordColumns | None] | None


class Passage(ABC, Generic[PassedRecord]):
    """The interceptors that have a hook for one side, in the order in which records pass them."""

    _HOOK: ClassVar[str]

    def __init__(self, interceptors: Iterable[Interceptor], refuse: Refuse[PassedRecord]) -> None:
        """`refuse` takes a record, the interceptor that refuses it and why; what it raises ends the passage."""
        self._refuse: Final = refuse
        self._steps: Final[list[_Step]] = []
        for each in interceptors:
            names = self._HOOK, f"{self._HOOK}_columns"
            hooks = (getattr(each, name) if defines(each, name) else None for name in names)
            step = _Step(each.name, *hooks)
            if step.record or step.columns:
                self._steps.append(step)
        self.is_open: Final = not self._steps
        """Whether no interceptor has a hook for this side."""
        self.is_in_columns: Final = bool(self._steps) and all(step.columns is not None for step in self._steps)
        """Whether all of them take columns, so that records are best passed together."""
        self.at: tuple[RecordColumns, int] | None = None
        """The columns and the row in them of the record that an interceptor has; None while records come alone."""

    def pass_record(self, record: PassedRecord) -> list[PassedRecord]:
        """Return what the interceptors leave of a record. Raises ProcessorError around what is not a refusal.

        A ServiceUnavailableError passes as it is: it is no fault of the interceptor, nor of the record.
        """
        self.at = None
        records = [record]
        for step in self._steps:
            records = self._step(step, records)
            if not records:
                break
        return records

    def pass_columns(self, columns: RecordColumns, first: int = 0) -> Iterator[RecordColumns]:
        """Yield what interceptors, from `first` on, leave of records in columns, in parts where it has become a lot.

        A part is passed to its end before the next one is made. Raises what `pass_record` raises.
        """
        if not len(columns):
            return
        if first == len(self._steps):
            yield columns
            return
        for part in self._columns_step(self._steps[first], columns):
            yield from self.pass_columns(part, first + 1)

    def _step(self, step: _Step, records: Iterable[PassedRecord]) -> list[PassedRecord]:
        hook = step.record or partial(self._by_columns, step)
        passed: list[PassedRecord] = []
        for record in records:
            try:
                for made in hook(record):
                    if made is not record:
                        self._check(record, made)
                    passed.append(made)
            except (RecordRefusedError, DataException) as error:
                self._leave_out(record, step.name, error)
            except (ProcessorError, ServiceUnavailableError):
                raise
            except Exception as cause:
                raise ProcessorError(node=step.name, cause=cause, **self._place(record)) from cause
        return passed

    def _leave_out(self, record: PassedRecord, name: str, error: Refusal) -> None:
        """Leave out a record that an interceptor refuses. If that raises, the error names the record."""
        place = self._place(record)
        try:
            self._refuse(record, name, error)
        except RecordRefusedError as refused:
            refused.name_record(**place)
            raise
        except DataException as cause:
            raise ProcessorError(node=name, cause=cause, **place) from cause

    def _columns_step(self, step: _Step, columns: RecordColumns) -> Iterator[RecordColumns]:
        made, failure = None, None
        if step.columns is not None:
            try:
                made = step.columns(columns)
                if made is not None or step.record is None:
                    self._check_columns(columns, made)
            except ServiceUnavailableError:
                raise
            except Exception as cause:
                made, failure = None, cause
        if made is not None:
            yield made
            return
        if failure is None or step.record is None or isinstance(failure, RecordRefusedError | DataException):
            yield from self._row_step(step, columns)
            return
        for _ in self._row_step(step, columns):
            pass  # raises for the record that it was
        raise ProcessorError(node=step.name, doing=f"a batch of {len(columns)} records", cause=failure) from failure

    def _row_step(self, step: _Step, columns: RecordColumns) -> Iterator[RecordColumns]:
        """Have an interceptor take records in columns one by one, and yield what it leaves in parts."""
        passed: list[PassedRecord] = []
        rows: list[int] = []
        passed_bytes = 0
        for row, record in enumerate(self._rows(columns)):
            self.at = columns, row
            made = self._step(step, (record,))
            self.at = None
            passed += made
            rows += [row] * len(made)
            passed_bytes += sum(len(one.value or b"") for one in made)
            if passed_bytes >= PART_BYTES:
                yield self._columns(passed, _require_origin(columns).take(pa.array(rows, pa.int64())))
                passed, rows, passed_bytes = [], [], 0
        yield self._columns(passed, _require_origin(columns).take(pa.array(rows, pa.int64())))

    def _by_columns(self, step: _Step, record: PassedRecord) -> Iterable[PassedRecord]:
        assert step.columns is not None
        columns = self._columns([record], self._origin(record))
        made = step.columns(columns)
        self._check_columns(columns, made)
        assert made is not None
        return self._rows(made)

    @abstractmethod
    def _rows(self, columns: RecordColumns) -> list[PassedRecord]: ...

    @abstractmethod
    def _origin(self, record: PassedRecord) -> pa.RecordBatch: ...

    def _columns(self, records: Sequence[PassedRecord], origin: pa.RecordBatch) -> RecordColumns:
        return RecordColumns.adopt(
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.timestamp_ms for record in records], pa.int64()),
            pa.array([record.headers.to_bytes() for record in records], pa.binary()),
            origin,
        )

    @abstractmethod
    def _place(self, record: PassedRecord) -> dict[str, Any]:
        """Return what an error says of where a record is."""

    @abstractmethod
    def _check(self, record: PassedRecord, made: Any) -> None:
        """Raise TypeError or ValueError unless a hook may make this of a record."""

    def _check_columns(self, columns: RecordColumns, made: Any) -> None:
        """Raise TypeError or ValueError unless a hook may make this of records in columns."""
        if not isinstance(made, RecordColumns):
            raise TypeError(f"it must return RecordColumns, not {shape_of(made)}")
        for name in ("key", "value"):
            type_ = getattr(made, name).type
            if not pa.types.is_binary(type_):
                raise TypeError(f"it must give {name}s of bytes, not a column of {type_}")
        _require_origin(made)


class IngestPassage(Passage[IngestedRecord]):
    """The side of what comes in: the last interceptor of a chain is passed first."""

    _HOOK = "on_ingest"

    def __init__(self, interceptors: Sequence[Interceptor], refuse: Refuse[IngestedRecord]) -> None:
        super().__init__(reversed(interceptors), refuse)

    def _rows(self, columns: RecordColumns) -> list[IngestedRecord]:
        origin = _require_origin(columns)
        return [record_of(fields) for fields in _fields(columns, *(origin.column(name) for name in PLACE))]

    def _origin(self, record: IngestedRecord) -> pa.RecordBatch:
        columns = [_topics([record.topic]), pa.array([record.partition], pa.int32()), pa.array([record.offset])]
        return pa.record_batch(columns, names=PLACE)

    def _place(self, record: IngestedRecord) -> dict[str, Any]:
        return {"doing": f"in {self._HOOK}()", **record_facts(*source_of(record))}

    def _check(self, record: IngestedRecord, made: Any) -> None:
        if not isinstance(made, ConsumerRecord):
            raise TypeError(f"it must return ConsumerRecords, not {shape_of(made)}")
        if _place_and_key(made) != _place_and_key(record):
            raise ValueError("it must not change topic, partition, offset or key")
        _check_value(made.value)
        if made.timestamp_ms < 0 and made.timestamp_ms != record.timestamp_ms:
            raise ValueError(f"it must not give a negative timestamp, got {made.timestamp_ms}")

    def _check_columns(self, columns: RecordColumns, made: Any) -> None:
        super()._check_columns(columns, made)
        if made.key is columns.key and made.origin is columns.origin:
            return
        known = dict(zip(_places(columns), row_objects(columns.key), strict=True))
        for place, key in zip(_places(made), row_objects(made.key), strict=True):
            if place not in known or known[place] != key:
                raise ValueError("it must not change topic, partition, offset or key")


class EmitPassage(Passage[EmittedRecord]):
    """The side of what goes out: the first interceptor of a chain is passed first."""

    _HOOK = "on_emit"

    def _rows(self, columns: RecordColumns) -> list[EmittedRecord]:
        topics = _require_origin(columns).column("topic")
        return [
            ProducerRecord.adopt(topic, timestamp_ms, key, value, Headers.from_bytes(header_bytes))
            for topic, timestamp_ms, key, value, header_bytes in _fields(columns, topics)
        ]

    def _origin(self, record: EmittedRecord) -> pa.RecordBatch:
        return pa.record_batch([_topics([record.topic])], names=["topic"])

    def _columns(self, records: Sequence[EmittedRecord], origin: pa.RecordBatch) -> RecordColumns:
        topics = [record.topic for record in records]
        place = origin.schema.get_field_index("topic")
        return super()._columns(records, origin.set_column(place, "topic", _topics(topics)))

    def _place(self, record: EmittedRecord) -> dict[str, Any]:
        content = content_facts(record.key, record.value, record.headers.to_bytes())
        return {"doing": f"on a record to topic {record.topic!r}", **content}

    def _check(self, record: EmittedRecord, made: Any) -> None:
        if not isinstance(made, ProducerRecord):
            raise TypeError(f"it must return ProducerRecords, not {shape_of(made)}")
        if not made.topic:
            raise ValueError("it must not give an empty topic")
        if made.key is not None and not isinstance(made.key, bytes):
            raise TypeError(f"it must give a key of bytes or None, not {shape_of(made.key)}")
        _check_value(made.value)
        if made.timestamp_ms != record.timestamp_ms and (made.timestamp_ms is None or made.timestamp_ms < 0):
            raise ValueError(f"it must not give a negative timestamp, or none, got {made.timestamp_ms}")


def record_of(source: SourceFields) -> IngestedRecord:
    """Return the record of these fields."""
    topic, partition, offset, timestamp_ms, key, value, header_bytes = source
    return ConsumerRecord.adopt(topic, partition, offset, timestamp_ms, key, value, Headers.from_bytes(header_bytes))


def source_of(record: IngestedRecord) -> SourceFields:
    """Return the fields of a record as a task takes them."""
    header_bytes = record.headers.to_bytes()
    return record.topic, record.partition, record.offset, record.timestamp_ms, record.key, record.value, header_bytes


def _require_origin(columns: RecordColumns) -> pa.RecordBatch:
    if columns.origin is None:
        raise ValueError("it must derive its columns from those it was given: by with_columns, take, filter and so on")
    return columns.origin


def _places(columns: RecordColumns) -> list[tuple[Any, ...]]:
    origin = _require_origin(columns)
    return list(zip(*(row_objects(origin.column(name)) for name in PLACE), strict=True))


def _fields(columns: RecordColumns, *place: pa.Array) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of each row: where it is, the timestamp, key, value and header bytes."""
    parts = (*place, columns.timestamp_ms, columns.key, columns.value, columns.headers)
    return zip(*map(row_objects, parts), strict=True)


def _check_value(value: object) -> None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"it must give a value of bytes or None, not {shape_of(value)}")


def _topics(topics: Iterable[str]) -> pa.DictionaryArray:
    named = pa.array(topics, pa.string()).dictionary_encode()
    return named.cast(pa.dictionary(pa.int32(), pa.string()))
