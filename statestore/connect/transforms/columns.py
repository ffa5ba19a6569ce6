"""ColumnChain: a chain over columns of many records.

A chain that looks at nothing but headers, topics and whether there is a value is run on whole columns, without a Python
object a record; any other one is run on records that are made of the rows. Both do the same: a header that no step
touches keeps its bytes, and what a step adds has those that the converter writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect.converters.base import STRICT_MODE, HeaderConverter
from statestore.connect.converters.conversion import read_headers, write_headers
from statestore.connect.converters.registry import HEADER_CONVERTER, header_converter
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.chain import TransformChain
from statestore.connect.transforms.connector_config import connector_properties, read_steps
from statestore.connect.transforms.drop_headers import DropHeaders
from statestore.connect.transforms.filter import Filter
from statestore.connect.transforms.insert_header import InsertHeader
from statestore.connect.transforms.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from statestore.connect.transforms.step import Step
from statestore.connect.transforms.typed_columns import TypedColumn, columns_of
from statestore.format.binary_columns import Flags, Integers, as_one_array, is_valid, row_objects
from statestore.format.records.header_lists import add_to_lists, remove_from_lists, rows_with_key
from statestore.headers import Headers
from statestore.headers.record_columns import RecordColumns

_IN_COLUMNS: Final = (DropHeaders, Filter, InsertHeader, HasHeaderKey, RecordIsTombstone, TopicNameMatches)
_NO_TOPIC: Final = ""
"""What a converter is told of a record that came from nowhere."""


@dataclass(frozen=True)
class ColumnChain:
    """A chain, and the converter that headers are read and written with.

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
        return all(
            type(part) in _IN_COLUMNS
            for step in self.chain.steps
            for part in (step.transformation, step.predicate)
            if part is not None
        )

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
        values: pa.Array | pa.ChunkedArray | None = None,
    ) -> tuple[pa.ListArray, Integers]:
        """Return what the chain makes of Spark's column of headers, and the row that each list came from.

        `topics` and `values` are for the predicates that look at them; without them no record has one. Raises
        ValueError if the chain is none for columns.
        """
        if not self.is_in_columns:
            raise ValueError(f"not all of it can be done on columns: {self.chain.describe()}")
        headers = as_one_array(headers, "headers")
        topics = pa.nulls(len(headers), pa.string()) if topics is None else as_one_array(topics, "topics")
        if not pa.types.is_dictionary(topics.type):
            topics = topics.cast(pa.string()).dictionary_encode()
        has_value = np.zeros(len(headers), np.bool_) if values is None else is_valid(values)
        rows = _Rows(headers, topics, has_value, np.arange(len(headers)))
        for step in self.chain.steps:
            rows = self._step(step, rows)
        return rows.headers, rows.numbers

    def _in_columns(self, records: RecordColumns) -> RecordColumns:
        lists = records.decoded_headers()
        made, rows = self.apply_to_lists(lists, topics=records.topic, values=records.value)
        if made is lists:
            return records
        kept = records if len(rows) == len(records) else records.take(rows)
        return kept.with_columns(headers=made)

    def _step(self, step: Step, rows: _Rows) -> _Rows:
        chosen = None if step.predicate is None else _chosen(step.predicate, rows) != step.negate
        if isinstance(step.transformation, InsertHeader):
            values = self._literals(step.transformation, rows, chosen)
            return replace(rows, headers=add_to_lists(rows.headers, step.transformation.header, values, chosen))
        if isinstance(step.transformation, DropHeaders):
            return replace(rows, headers=remove_from_lists(rows.headers, step.transformation.headers, chosen))
        return rows.only(np.zeros(len(rows.headers), np.bool_) if chosen is None else ~chosen)

    def _literals(self, insert: InsertHeader, rows: _Rows, chosen: Flags | None) -> pa.BinaryArray:
        """Return the bytes of a literal for each row: a converter may write others for another topic."""
        indices = pc.fill_null(rows.topics.indices, len(rows.topics.dictionary)).to_numpy(zero_copy_only=False)
        topics = [*rows.topics.dictionary.to_pylist(), None]
        used = np.unique(indices if chosen is None else indices[chosen])
        written: list[bytes | None] = [None] * len(topics)
        header = ConnectHeaders().add(insert.header, insert.literal)
        for index in used.tolist():
            (only,) = write_headers(header, self.converter, topic=topics[index] or _NO_TOPIC)
            written[index] = only.value
        return pa.array(written, pa.binary()).take(pa.array(indices))

    def _in_records(self, records: RecordColumns) -> RecordColumns:
        topics: Sequence[str | None] = [None] * len(records) if records.topic is None else row_objects(records.topic)
        keys, values = TypedColumn(records.key), TypedColumn(records.value)
        partitions = [None] * len(records) if records.partition is None else records.partition.to_pylist()
        times = records.timestamp_ms.to_pylist()
        rows: list[int] = []
        made: list[ConnectRecord] = []
        headers: list[bytes] = []
        for row, encoded in enumerate(records.headers.to_pylist()):
            topic = topics[row]
            record = ConnectRecord(
                topic,
                kafka_partition=partitions[row],
                key_schema=keys.schema,
                key=keys.values[row],
                value_schema=values.schema,
                value=values.values[row],
                timestamp_ms=times[row],
                headers=read_headers(Headers.from_bytes(encoded), self.converter, topic=topic or _NO_TOPIC),
            )
            found = self.chain.apply(record)
            if found is not None:
                rows.append(row)
                made.append(found)
                written = write_headers(found.headers, self.converter, topic=found.topic or _NO_TOPIC)
                headers.append(written.to_bytes())
        kept = records.take(rows)
        return kept.with_columns(
            key=keys.column_of(rows, *columns_of(made, "key")),
            value=values.column_of(rows, *columns_of(made, "value")),
            timestamp_ms=pa.array([record.timestamp_ms for record in made], pa.int64()),
            headers=pa.array(headers, pa.binary()),
        )


@dataclass(frozen=True)
class _Rows:
    """Records that are left, as far as steps on columns look at them."""

    headers: pa.ListArray
    topics: pa.DictionaryArray
    has_value: Flags
    numbers: Integers = field(repr=False)
    """Which rows they were."""

    def only(self, kept: Flags) -> _Rows:
        mask = pa.array(kept)
        return _Rows(self.headers.filter(mask), self.topics.filter(mask), self.has_value[kept], self.numbers[kept])


def _chosen(predicate: Any, rows: _Rows) -> Flags:
    """Return for each row whether a predicate is true of it."""
    if isinstance(predicate, HasHeaderKey):
        nobody = np.zeros(len(rows.headers), np.bool_)
        return nobody if predicate.name is None else rows_with_key(rows.headers, predicate.name)
    if isinstance(predicate, RecordIsTombstone):
        return ~rows.has_value
    topics = [*rows.topics.dictionary.to_pylist(), None]
    matching = np.array([predicate.test(ConnectRecord(topic)) for topic in topics])
    found: Flags = matching[pc.fill_null(rows.topics.indices, len(topics) - 1).to_numpy(zero_copy_only=False)]
    return found
