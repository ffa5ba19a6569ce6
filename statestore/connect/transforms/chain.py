"""TransformChain: transformations one after the other, each for the records that its predicate is true of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.connect.converters.base import STRICT_MODE, HeaderConverter
from statestore.connect.converters.registry import HEADER_CONVERTER, header_converter
from statestore.connect.records import ConnectRecord, SinkRecord
from statestore.connect.transforms.connector_config import connector_properties, read_steps
from statestore.connect.transforms.header_steps import NO_TOPIC
from statestore.connect.transforms.transformation import HeaderRows, Step, Transformation
from statestore.connect.transforms.typed_columns import TypedColumn
from statestore.connect.typed_headers import read_headers, write_headers
from statestore.format.binary_columns import Integers, as_one_array, is_valid, row_objects
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers


@dataclass(frozen=True, repr=False)
class TransformChain:
    """Steps that are done in order. A value: it never changes, may be pickled, and is equal to one of equal steps.

    It is made of a connector's configuration by `from_properties`, or of transformations by `of`.
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def from_properties(cls, config: str | Mapping[str, Any], *, mode: str = STRICT_MODE) -> TransformChain:
        """Make a chain of a connector's configuration; what else is in it does nothing.

        Args:
            config: a mapping, the text of a file of Java's properties, or JSON. In a mapping, the property `type` may
                be a class or an object of one too; elsewhere it is a name of Kafka's or "module:Class".
            mode: the property `mode` of transformations that have one, and are not told. "compat" does what Kafka
                does, "strict" loses nothing where Kafka does.

        Raises ConfigException, with the full name of the property, if one is missing or wrong. Logs a warning for each
        property that nobody knows, and one for all that do nothing here.
        """
        return cls(read_steps(config, mode))

    @classmethod
    def of(cls, *steps: Step | Transformation) -> TransformChain:
        """Make a chain of steps, or of transformations for all records, whose aliases are their positions from 1."""
        return cls(
            tuple(
                each if isinstance(each, Step) else Step(str(position), each)
                for position, each in enumerate(steps, start=1)
            )
        )

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return what the steps make of a record, None if one of them drops it. The record itself stays as it is."""
        made: ConnectRecord | None = record
        for step in self.steps:
            if made is None:
                return None
            made = step.apply(made)
        return made

    def close(self) -> None:
        """Close all transformations and predicates."""
        for step in self.steps:
            step.transformation.close()
            if step.predicate is not None:
                step.predicate.close()

    def describe(self) -> str:
        """Return what the steps do, in order."""
        return " -> ".join(step.describe() for step in self.steps)

    def __repr__(self) -> str:
        return f"TransformChain({self.describe()})"


@dataclass(frozen=True)
class ColumnChain:
    """A chain, and the converter that headers are read and written with, over columns of many records.

    What looks only at headers, topics and whether there is a value runs on whole columns, without a Python object a
    record; any other chain on records that are made of the rows. Both do the same: a header that no step
    touches keeps its bytes, and what a step adds has those that the converter writes.

    What works on keys or values finds those of the columns with schemas (see `typed_columns`): a row of a struct column
    is a struct. The column comes back with the fields that there are then. A step that gives a record another topic or
    partition does so for the steps behind it only: columns say where records came from.
    """

    chain: TransformChain
    converter: HeaderConverter

    @classmethod
    def from_properties(cls, config: str | Mapping[str, Any], *, mode: str = STRICT_MODE) -> ColumnChain:
        """Make a chain of a connector's configuration, with the converter that its `header.converter` asks for.

        The configuration, `mode` and errors are as in `TransformChain.from_properties`.
        """
        properties = connector_properties(config)
        steps = read_steps(properties, mode, [HEADER_CONVERTER])
        return cls(TransformChain(steps), header_converter(properties, mode=mode))

    @property
    def is_in_columns(self) -> bool:
        """Whether no Python object is made for a record."""
        return all(step.takes_columns for step in self.chain.steps)

    def apply(self, records: RecordColumns) -> RecordColumns:
        """Return what the chain makes of records, in order, without those that it drops.

        Raises what the steps and the converter raise: the first record's that can't be done.
        """
        if not self.chain.steps:
            return records
        return self._in_columns(records) if self.is_in_columns else self._in_records(records)

    def apply_to_lists(
        self,
        headers: pa.ListArray | pa.ChunkedArray,
        *,
        topics: pa.Array | pa.ChunkedArray | None = None,
        timestamps_ms: pa.Array | None = None,
        values: pa.Array | pa.ChunkedArray | None = None,
    ) -> tuple[pa.ListArray, Integers]:
        """Return what the chain makes of Spark's column of headers, and the row that each list came from.

        `topics`, `timestamps_ms` and `values` are for the steps that look at them; without them no record has one.
        Raises ValueError if the chain can't run on columns.
        """
        if not self.is_in_columns:
            raise ValueError(f"not all of it can be done on columns: {self.chain.describe()}")
        headers = as_one_array(headers, "headers")
        topics = pa.nulls(len(headers), pa.string()) if topics is None else as_one_array(topics, "topics")
        if not pa.types.is_dictionary(topics.type):
            topics = topics.cast(pa.string()).dictionary_encode()
        has_value = np.zeros(len(headers), np.bool_) if values is None else is_valid(values)
        if timestamps_ms is None:
            timestamps_ms = pa.nulls(len(headers), pa.int64())
        rows = HeaderRows(headers, topics, topics, timestamps_ms, has_value, np.arange(len(headers)))
        for step in self.chain.steps:
            rows = step.apply_columns(rows, self.converter)
        return rows.headers, rows.numbers

    def _in_columns(self, records: RecordColumns) -> RecordColumns:
        lists = records.decoded_headers()
        made, rows = self.apply_to_lists(
            lists, topics=records.topic, timestamps_ms=records.timestamp_ms, values=records.value
        )
        if made is lists:
            return records
        kept = records if len(rows) == len(records) else records.take(rows)
        return kept.with_columns(headers=made)

    def _in_records(self, records: RecordColumns) -> RecordColumns:
        topics: Sequence[str | None] = [None] * len(records) if records.topic is None else row_objects(records.topic)
        keys, values = TypedColumn(records.key), TypedColumn(records.value)
        partitions = [None] * len(records) if records.partition is None else records.partition.to_pylist()
        offsets = None if records.offset is None else records.offset.to_pylist()
        times = records.timestamp_ms.to_pylist()
        rows: list[int] = []
        made: list[ConnectRecord] = []
        headers: list[bytes] = []
        for row, encoded in enumerate(records.headers.to_pylist()):
            topic = topics[row]
            facts: dict[str, Any] = {
                "kafka_partition": partitions[row],
                "key_schema": keys.schema,
                "key": keys.values[row],
                "value_schema": values.schema,
                "value": values.values[row],
                "timestamp_ms": times[row],
                "headers": read_headers(Headers.from_bytes(encoded), self.converter, topic=topic or NO_TOPIC),
            }
            if offsets is None:
                record = ConnectRecord(topic, **facts)
            else:
                record = SinkRecord(topic, kafka_offset=offsets[row], **facts)
            found = self.chain.apply(record)
            if found is not None:
                rows.append(row)
                made.append(found)
                written = write_headers(found.headers, self.converter, topic=topic or NO_TOPIC)
                headers.append(written.to_bytes())
        kept = records.take(rows)
        return kept.with_columns(
            key=keys.column_of(rows, [each.key_schema for each in made], [each.key for each in made]),
            value=values.column_of(rows, [each.value_schema for each in made], [each.value for each in made]),
            timestamp_ms=pa.array([record.timestamp_ms for record in made], pa.int64()),
            headers=pa.array(headers, pa.binary()),
        )
