"""Interceptors that tests of several packages put into their chains."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from statestore import Record
from statestore.errors import RecordRefusedError
from statestore.headers.record_columns import RecordColumns
from statestore.middleware import EmittedRecord, IngestedRecord, Interceptor


class Named(Interceptor):
    """An interceptor with a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class Stamp(Named):
    """Adds a header of its name on either side."""

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        record.headers.add("in", self.name.encode())
        return [record]

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        record.headers.add("out", self.name.encode())
        return [record]


class ColumnStamp(Named):
    """Does what Stamp does, to columns alone."""

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        return records.with_header("in", self.name.encode())

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        return records.with_header("out", self.name.encode())


class Doubling(Named):
    """Makes two of each record that has a value, and none of others."""

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        return [] if record.value is None else [record, record.copy(value=record.value * 2)]

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        return [] if record.value is None else [record, record.copy(value=record.value * 2, topic=f"{record.topic}-2")]


class ForbiddenError(RecordRefusedError):
    """What Refusing refuses with."""


class Refusing(Named):
    """Refuses values that begin with "bad"; columns and records alike."""

    audit_topic: str | None = None

    def _refuse(self) -> None:
        raise ForbiddenError("a bad value", audit_topic=self.audit_topic)

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        if (record.value or b"").startswith(b"bad"):
            self._refuse()
        return [record]

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        if pc.any(pc.starts_with(records.value.cast(pa.string()), "bad")).as_py():
            self._refuse()
        return records

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        if (record.value or b"").startswith(b"bad"):
            self._refuse()
        return [record]


class Upper(Named):
    """Sees text as objects: what comes in and goes out is in capitals, and what is silent goes nowhere."""

    def on_consume(self, record: Record[str, str]) -> Iterable[Record[str, str]]:
        return [record.with_value(record.value.upper())]

    def on_send(self, topic: str, record: Record[str, str]) -> Iterable[Record[str, str]]:
        return [] if record.value == "SILENT" else [record.with_value(f"{topic}: {record.value}")]
