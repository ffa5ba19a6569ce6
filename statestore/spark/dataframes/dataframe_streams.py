"""DataFrameStreams: programs of the DSL on DataFrames of any columns, and their results as columns again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructType

from statestore.dsl.aggregates.aggregate import FROM_JSON
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import GlobalKTable, KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.row_serde import RowSerde, row_serde
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windowed_serdes import WindowedLayout, WindowedSerde
from statestore.errors import InputError, TopologyError
from statestore.format.serde import STANDARD_SERDES, Serde
from statestore.processor.topology import Topology
from statestore.spark.dataframes.encodings import decode
from statestore.spark.dataframes.from_records import columns_of
from statestore.spark.dataframes.to_records import Columns, RecordOptions, check_record_options, encoding_of, to_records
from statestore.spark.spark_versions import arrow_type_of
from statestore.spark.stateful import stateful

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing has it from Python 3.11 on

_RESULT: Final = "result"
_KEY: Final = "key"
_TIME_BYTES: Final = 8


class DataFrameStreams:
    """Streams and tables of DataFrames, each with columns of its own, in one query.

    `stream` and `table` take DataFrames, what they return has the DSL's steps, and `result` makes a DataFrame of one of
    them. A key of one column is written by its type; one of several columns is the JSON of them.
    """

    def __init__(self, *, in_columns: bool = True) -> None:
        """Begin a program. `in_columns` of False has all of it go record by record, as `StreamsBuilder` says."""
        self._builder = StreamsBuilder(in_columns=in_columns)
        self._inputs: list[DataFrame] = []
        self._keys: list[tuple[str, StructType | None]] = []
        """Of each input, the name of its key's column, and if it has several, their types."""
        self._changes: dict[KTable[KStream], KStream] = {}
        """The streams of tables whose changes are put out."""
        self._in_keys: list[tuple[Serde[Any], set[str]]] = []
        """Of each input the serde of its values, and the columns of them that keys have too."""

    def stream(
        self, df: DataFrame, *, key: Columns, value: Columns, name: str | None = None, **options: Unpack[RecordOptions]
    ) -> KStream:
        """Return the rows of a streaming DataFrame as a stream.

        Args:
            df: any columns.
            key: of the record: a column, or several, as in `to_records`.
            value: of the record. A value of one column is that column's; of several it is a dict of them, by name.
            name: of the topic that records are said to come from; None numbers it.
            options: the others of `to_records`: timestamp, headers, order_by, partition, key_as, value_as,
                omit_null_headers.

        Raises RecordColumnsError with all that is wrong about the columns, TypeError for an unknown option.
        """
        topic, key_serde, value_serde = self._add(df, key, value, name, options)
        return self._builder.stream(topic, key_serde=key_serde, value_serde=value_serde)

    def table(
        self,
        df: DataFrame,
        *,
        key: Columns,
        value: Columns,
        materialized: Materialized | None = None,
        name: str | None = None,
        **options: Unpack[RecordOptions],
    ) -> KTable[KStream]:
        """Return the rows of a streaming DataFrame as a table: of each key the latest row.

        `materialized` is as in `StreamsBuilder.table`, all else as in `stream`.
        """
        topic, key_serde, value_serde = self._add(df, key, value, name, options)
        return self._builder.table(topic, key_serde=key_serde, value_serde=value_serde, materialized=materialized)

    def global_table(
        self,
        df: DataFrame,
        *,
        key: Columns,
        value: Columns,
        materialized: Materialized | None = None,
        name: str | None = None,
        **options: Unpack[RecordOptions],
    ) -> GlobalKTable:
        """Return the rows of a streaming DataFrame as a table that every shard has all of, to be joined by any key.

        The arguments are those of `table`.
        """
        topic, key_serde, value_serde = self._add(df, key, value, name, options)
        self._keys.pop()  # results do not have the key of a table that is looked into
        return self._builder.global_table(
            topic, key_serde=key_serde, value_serde=value_serde, materialized=materialized
        )

    def result(
        self,
        result: KStream | KTable[KStream],
        *,
        value: str = "value",
        value_schema: str | DataType | None = None,
        timestamp: str | None = "timestamp",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return a stream, or the changes of a table, as a DataFrame: key, windows, value, timestamp and headers.

        Args:
            result: a stream or table of this program.
            value: the name of the value's column, where it is one.
            value_schema: of values that are JSON: in Spark's words or as a type, "json" for their text. None is what is
                known of them: aggregates of `agg`, and rows that came through as they were, have their columns; of
                others it is the text.
            timestamp: the name of the timestamp's column; None leaves it out.
            headers: columns made of headers, as `from_records` makes them; None is one column `headers`.
            options: those of `stateful`, as shards and state_location.

        Keys have the names that they came with, or `key` if inputs do not agree on them or a step has changed them. Of
        a windowed key there are `window_start` and `window_end` as well. A null value says that a key is gone. Raises
        TopologyError if it is not known how values are written, and what `stateful` and `from_records` raise.
        """
        records = self.records({_RESULT: result}, **options)
        return self.columns(
            records, result, value=value, value_schema=value_schema, timestamp=timestamp, headers=headers
        )

    def records(self, results: Mapping[str, KStream | KTable[KStream]], **options: Any) -> DataFrame:
        """Return several results in one DataFrame of Kafka's shape, with the name of each as the topic.

        `options` are those of `stateful`. In a foreachBatch, `columns` makes columns of the rows of one topic.
        Each call is a query of its own, as is each of `result`: of all that was declared, with these results alone.
        """
        if not self._inputs:
            raise InputError("the program has no input: add one with stream() or table()")
        return stateful(reduce(DataFrame.unionAll, self._inputs), self.topology(results), **options)

    def topology(self, results: Mapping[str, KStream | KTable[KStream]]) -> Topology:
        """Return the topology that `records` runs: to look at, or for a TopologyTestDriver.

        Raises TopologyError if it is not known how keys and values of a result are written.
        """
        sinks = [(topic, self._changes_of(result)._node, _serdes_of(result)) for topic, result in results.items()]
        topology = self._builder.build()
        for topic, node, (key_serde, value_serde) in sinks:
            # Not in the program: it may be asked for other results later, in another query.
            topology.add_sink(f"KSTREAM-SINK-{topic}", topic, (node,), key_serde=key_serde, value_serde=value_serde)
        return topology

    def columns(
        self,
        records: DataFrame,
        result: KStream | KTable[KStream],
        *,
        value: str = "value",
        value_schema: str | DataType | None = None,
        timestamp: str | None = "timestamp",
        headers: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Return records of one result in columns; the arguments are those of `result`."""
        key_serde, value_serde = _serdes_of(result)
        name, several = self._key(result)
        computed: Mapping[str, Column] = {}
        if isinstance(key_serde, WindowedSerde):
            layout = key_serde.layout
            key_serde, computed = layout.inner, _windows(layout)
            inner = F.expr(f"substring(key, 1, length(key) - {_TIME_BYTES * len(layout.times)})")
            # The windows are read of the key as it came, so that is kept.
            records = records.withColumns({_WHOLE_KEY: F.col(_KEY), _KEY: inner})
        return columns_of(
            records,
            self._schema(value_serde, value_schema, {name} if several is None else set(several.names)),
            key=name,
            key_as=several if several is not None else key_serde.name,
            value=value,
            timestamp=timestamp,
            headers=headers,
            keep=() if headers is not None else ("headers",),
            key_fields=several is not None,
            computed=computed,
        )

    def _add(
        self, df: DataFrame, key: Columns, value: Columns, name: str | None, options: RecordOptions
    ) -> tuple[str, Serde[Any], Serde[Any]]:
        check_record_options(options)
        topic = name or f"input-{len(self._inputs)}"
        self._inputs.append(to_records(df, key=key, value=value, topic=topic, **options))
        key_encoding, key_type = encoding_of(df, "key", key, options.get("key_as"))
        several = None if isinstance(key, (str, Column)) or not isinstance(key_type, StructType) else key_type
        self._keys.append((key if isinstance(key, str) else _KEY, several))
        # The bytes of several columns are a text, to everybody but who reads the result: texts go in columns.
        key_serde = STANDARD_SERDES["string" if several is not None else key_encoding]
        value_serde = _value_serde(*encoding_of(df, "value", value, options.get("value_as")))
        self._in_keys.append((value_serde, _named(df, key) & _named(df, value)))
        return topic, key_serde, value_serde

    def _changes_of(self, result: KStream | KTable[KStream]) -> KStream:
        """Return a stream, or that of a table's changes: the same one for each query."""
        if not isinstance(result, KTable):
            return result
        if result not in self._changes:
            self._changes[result] = result.to_stream()
        return self._changes[result]

    def _key(self, result: KStream | KTable[KStream]) -> tuple[str, StructType | None]:
        first = self._keys[0]
        is_known = all(each == first for each in self._keys) and not result._graph.has_new_keys(result._node)
        return first if is_known else (_KEY, None)

    def _schema(self, serde: Serde[Any], asked: str | DataType | None, key: set[str]) -> str | DataType:
        """Return what values are read as: rows that came through without the columns that the key has too."""
        if asked is not None and serde.name != "json":
            raise ValueError(f"value_schema is for JSON, and the result's values are {serde.name}")
        if serde.name not in STANDARD_SERDES:
            raise TopologyError(
                f"the result's values have a serde of your own, {serde.name!r}: read them with from_records()"
            )
        if asked is not None or not isinstance(serde, RowSerde) or not FROM_JSON.has(serde.row_type):
            return serde.name if asked is None else asked
        in_keys = key & {name for each, names in self._in_keys if each is serde for name in names}
        columns = from_arrow_type(serde.row_type, prefer_timestamp_ntz=True)
        assert isinstance(columns, StructType)  # of a row
        return StructType([column for column in columns if column.name not in in_keys])


_WHOLE_KEY: Final = "__windowed_key"


def _serdes_of(result: KStream | KTable[KStream]) -> tuple[Serde[Any], Serde[Any]]:
    """Return how keys and values are written. Raises TopologyError if it is not known, TypeError for no result."""
    if not isinstance(result, (KStream, KTable)):
        raise TypeError(f"a result must be a KStream or a KTable, not {result!r}: a grouped stream is to be aggregated")
    key_serde, value_serde = result._key_serde, result._value_serde
    if key_serde is None or value_serde is None:
        what = "keys" if key_serde is None else "values"
        raise TopologyError(
            f"it is not known how the {what} of the result are written: give the last step that makes them a "
            "serde, as map_values(..., value_serde=Serdes.int64())"
        )
    return key_serde, value_serde


def _named(df: DataFrame, asked: Columns) -> set[str]:
    """Return the columns of a DataFrame that a key or value has as they are."""
    if isinstance(asked, Column):
        return set()
    names = {asked} if isinstance(asked, str) else {each for each in asked if isinstance(each, str)}
    return set(df.columns) if "*" in names else names


def _value_serde(encoding: str, spark_type: DataType) -> Serde[Any]:
    if encoding != "json" or not isinstance(spark_type, StructType):
        return STANDARD_SERDES[encoding]
    return row_serde(pa.struct([(column.name, _arrow_type(column.dataType)) for column in spark_type]))


def _arrow_type(spark_type: DataType) -> pa.DataType:
    """Return Arrow's type of a column; null if it has none."""
    try:
        return arrow_type_of(spark_type)
    except PySparkTypeError:
        return pa.null()


def _windows(layout: WindowedLayout) -> dict[str, Column]:
    key, count = F.col(_WHOLE_KEY), len(layout.times)
    times = {
        name: decode(F.substring(key, -_TIME_BYTES * (count - place), _TIME_BYTES), "int64")
        for place, name in enumerate(layout.times)
    }
    end = times.get("end_ms", times["start_ms"] + F.lit(layout.size_ms))
    return {"window_start": F.timestamp_millis(times["start_ms"]), "window_end": F.timestamp_millis(end)}
