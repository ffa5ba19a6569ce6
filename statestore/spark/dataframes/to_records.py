"""`to_records`: turns business columns into records of Kafka's shape, for `stateful`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypedDict

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from statestore.errors import InputSchemaError
from statestore.errors.run import RecordColumnsError
from statestore.format.serde import Serde
from statestore.spark.dataframes.encodings import encode, encoding_for
from statestore.spark.header_functions.lookups import printed
from statestore.spark.shards.schema import HEADERS, INPUT_COLUMNS, check_column_type

ColumnOrName: TypeAlias = Column | str
Columns: TypeAlias = ColumnOrName | Sequence[ColumnOrName]
HeaderColumns: TypeAlias = ColumnOrName | Mapping[str, ColumnOrName | bytes | None]
Encoding: TypeAlias = str | Serde[Any]


class RecordOptions(TypedDict, total=False):
    """The arguments of `to_records` that have defaults."""

    timestamp: ColumnOrName | None
    headers: HeaderColumns | None
    order_by: ColumnOrName | None
    partition: ColumnOrName | int
    key_as: Encoding | None
    value_as: Encoding | None
    omit_null_headers: bool | Collection[str]


_UNSTABLE: Final = re.compile(r"\b(monotonically_increasing_id|spark_partition_id|randn?|uuid|shuffle)\(")
_LONG_DIGITS: Final = 18
"""Any number with so many digits is a bigint."""


def to_records(
    df: DataFrame,
    *,
    key: Columns | None,
    value: Columns,
    topic: ColumnOrName,
    timestamp: ColumnOrName | None = None,
    headers: HeaderColumns | None = None,
    order_by: ColumnOrName | None = None,
    partition: ColumnOrName | int = 0,
    key_as: Encoding | None = None,
    value_as: Encoding | None = None,
    omit_null_headers: bool | Collection[str] = False,
) -> DataFrame:
    """Return a DataFrame's rows as records of Kafka's shape, which `stateful` takes; streaming or batch.

    Args:
        df: any columns. Below, a column is given by its name, or as a Column with any expression.
        key: of the record; None for records without keys: for `shard_by="partition"`, or steps that give them some.
            Several columns, or `["*"]` for all, become a JSON object.
        value: likewise. A null value is a tombstone.
        topic: the name of the topic that a source of the topology reads; or a Column of names.
        timestamp: of the record: a column of timestamps, of dates (their midnight in the session's time zone), or of
            bigint, which are milliseconds since the epoch. None is the time at which Spark began the micro-batch, which
            is the same if the batch is run again.
        headers: for each header, in this order, the column with its value, as `header_functions.with_header` prints it;
            a literal as bytes or as a Column (`F.lit("eu")`), None for the value null. Or a column of headers as in
            Spark's Kafka source.
        order_by: the order in which the records of a micro-batch are processed within a topic and partition: a column
            of whole numbers, timestamps or dates, which becomes the offset. None is the order of timestamps, in
            microseconds. Equal ones are ordered by time, then by the bytes of key, value and headers.
        partition: a number, or a column of them. Within a partition `order_by` sets the order; several are merged by
            time. `shard_by="partition"` places records by it.
        key_as: how to write the key: string, bytes, int32, int64, double, boolean or json, or that serde of Serdes.
            None depends on the column's type: text is string, bigint is int64, smaller whole numbers are int32, and
            structs, arrays and maps are json.
        value_as: likewise. Null fields are in the JSON, as null.
        omit_null_headers: a null in a column of `headers` makes a header with a null value; with True it makes no
            header, and with names it makes none for these headers.

    Raises RecordColumnsError with everything that is wrong about the columns.
    """
    found = _Found(df)
    made = {
        "key": F.lit(None).cast("binary") if key is None else found.encoded("key", key, key_as),
        "value": found.encoded("value", value, value_as),
        "topic": found.topic(topic),
        "partition": found.partition(partition),
        "timestamp": F.current_timestamp() if timestamp is None else found.timestamp(timestamp),
        "headers": found.headers(headers, omit_null_headers),
    }
    order = None if order_by is None else found.order(order_by)
    if found.problems:
        raise RecordColumnsError("to_records", problems=found.problems)
    # In microseconds, though a record has milliseconds. `stateful` refuses a record without a time.
    made["offset"] = F.coalesce(F.unix_micros(made["timestamp"]), F.lit(-1)) if order is None else order
    return df.select([made[name].alias(name) for name in INPUT_COLUMNS])


def check_record_options(options: Mapping[str, object]) -> None:
    """Raise TypeError for names that RecordOptions does not have."""
    if unknown := sorted(set(options).difference(RecordOptions.__annotations__)):
        raise TypeError(
            f"there is no option {', '.join(map(repr, unknown))}: besides key, value and name there are "
            f"{', '.join(RecordOptions.__annotations__)}"
        )


def encoding_of(df: DataFrame, role: str, asked: Columns, encoding: Encoding | None = None) -> tuple[str, DataType]:
    """Return the encoding and type of a key or value in `to_records`; the type of several columns is a struct."""
    found = _Found(df)
    _, spark_type, name = found.encoding(role, asked, encoding)
    if name is None or spark_type is None:
        raise RecordColumnsError("to_records", problems=found.problems)
    return name, spark_type


class _Found:
    """Finds columns, and collects problems with them."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._names = {name.lower() for name in df.columns}
        self.problems: list[str] = []

    def encoded(self, role: str, asked: Columns, encoding: Encoding | None) -> Column:
        """Return one or several columns as bytes."""
        column, _, name = self.encoding(role, asked, encoding)
        return column if name is None else encode(column, name)

    def encoding(
        self, role: str, asked: Columns, encoding: Encoding | None
    ) -> tuple[Column, DataType | None, str | None]:
        """Return one or several columns with their type and encoding; None for both if something is wrong."""
        column, spark_type = self._one_of(role, asked)
        if spark_type is None:
            return column, None, None
        try:
            return column, spark_type, encoding_for(spark_type, encoding)
        except ValueError as cause:
            return self._refused(f"{role}: {cause} ({role}_as)"), None, None

    def topic(self, asked: ColumnOrName) -> Column:
        """Return the column of topics."""
        if isinstance(asked, str):
            return F.lit(asked) if asked else self._refused("topic: it is empty")
        column, spark_type = self._column("topic", asked)
        if spark_type is None or isinstance(spark_type, StringType):
            return column
        return self._refused(f"topic: is {spark_type.simpleString()}, not string")

    def partition(self, asked: ColumnOrName | int) -> Column:
        """Return the column of partitions."""
        if isinstance(asked, int):
            return F.lit(asked).cast("int") if 0 <= asked < 1 << 31 else self._refused(f"partition: is {asked}")
        column, spark_type = self._stable("partition", asked)
        if spark_type is None or (isinstance(spark_type, IntegralType) and not isinstance(spark_type, LongType)):
            return column.cast("int")
        return self._refused(f"partition: is {spark_type.simpleString()}, not int; cast it")

    def timestamp(self, asked: ColumnOrName) -> Column:
        """Return the column of timestamps."""
        column, spark_type = self._stable("timestamp", asked)
        if isinstance(spark_type, LongType):
            return F.timestamp_millis(column)
        if spark_type is None or isinstance(spark_type, (TimestampType, TimestampNTZType, DateType)):
            return column.cast("timestamp")
        return self._refused(
            f"timestamp: is {spark_type.simpleString()}; it takes a timestamp, a date, or milliseconds since the epoch "
            "as bigint. Texts become one with to_timestamp(), seconds with timestamp_seconds()"
        )

    def order(self, asked: ColumnOrName) -> Column:
        """Return the column of offsets."""
        column, spark_type = self._stable("order_by", asked)
        if isinstance(spark_type, (TimestampType, TimestampNTZType)):
            column = F.unix_micros(column.cast("timestamp"))
        elif isinstance(spark_type, DateType):
            column = F.unix_date(column).cast("bigint")
        elif spark_type is None or isinstance(spark_type, IntegralType) or _is_whole(spark_type):
            column = column.cast("bigint")
        else:
            return self._refused(
                f"order_by: is {spark_type.simpleString()}; it takes whole numbers of up to 64 bits, timestamps and "
                "dates"
            )
        return F.coalesce(column, F.raise_error(F.lit("to_records: order_by is null in a row")).cast("bigint"))

    def headers(self, asked: HeaderColumns | None, omit_null: bool | Collection[str]) -> Column:
        """Return the column of headers."""
        if asked is None:
            return F.array().cast(HEADERS)
        if not isinstance(asked, Mapping):
            return self._headers_column(asked)
        omitted = set(asked) if omit_null is True else set(omit_null or ())
        if unknown := omitted.difference(asked):
            self._refused(f"omit_null_headers: names {', '.join(map(repr, sorted(unknown)))}, which headers lacks")
        made = []
        for name, given in asked.items():
            if given is None or isinstance(given, (bytes, bytearray)):
                value = printed(given)
            else:
                value = printed(self._column(f"header {name!r}", given)[0])
            made.append(F.struct(F.lit(name).alias("key"), value.alias("value")))
        all_of = F.array(*made).cast(HEADERS)
        if not omitted:
            return all_of
        return F.filter(all_of, lambda header: header["value"].isNotNull() | ~header["key"].isin(sorted(omitted)))

    def _headers_column(self, asked: ColumnOrName) -> Column:
        column, spark_type = self._column("headers", asked)
        if spark_type is not None:
            try:
                check_column_type(StructField("headers", spark_type), HEADERS)
            except InputSchemaError as refused:
                self._refused(f"headers: {refused.problem}")
        return column

    def _one_of(self, role: str, asked: Columns) -> tuple[Column, DataType | None]:
        """Return one column, or several as a struct."""
        if isinstance(asked, (str, Column)):
            return self._stable(role, asked) if role == "key" else self._column(role, asked)
        if not isinstance(asked, Sequence):
            return self._column(role, asked)
        if not asked:
            return self._refused(f"{role}: it names no column"), None
        named = [each for each in asked if not (isinstance(each, str) and each == "*")]
        found = [self._column(role, each) for each in named]
        if any(spark_type is None for _, spark_type in found):
            return F.lit(None), None
        every = [F.col("*")] if len(named) < len(asked) else []
        return self._column(role, F.struct(*every, *(column for column, _ in found)))

    def _stable(self, role: str, asked: ColumnOrName) -> tuple[Column, DataType | None]:
        """Return a column that determines a record's place or order."""
        column, spark_type = self._column(role, asked)
        match = _UNSTABLE.search(str(column))
        if spark_type is None or match is None:
            return column, spark_type
        problem = f"{role}: {match[1]}() gives another result when its batch is run again; use a column of the data"
        return self._refused(problem), None

    def _column(self, role: str, asked: ColumnOrName) -> tuple[Column, DataType | None]:
        if isinstance(asked, str) and not {".", "`"} & set(asked) and asked.lower() not in self._names:
            return self._refused(f"{role}: there is no column {asked!r}; there are {', '.join(self._df.columns)}"), None
        if not isinstance(asked, str | Column):
            return self._refused(
                f"{role}: {asked!r} is neither a column nor the name of one; a value is F.lit(...)"
            ), None
        column = F.col(asked) if isinstance(asked, str) else asked
        try:
            return column, self._df.select(column.alias("found")).schema["found"].dataType
        except AnalysisException as cause:
            return self._refused(f"{role}: {str(cause).splitlines()[0]}"), None

    def _refused(self, problem: str) -> Column:
        self.problems.append(problem)
        return F.lit(None)


def _is_whole(spark_type: DataType) -> bool:
    return isinstance(spark_type, DecimalType) and spark_type.scale == 0 and spark_type.precision <= _LONG_DIGITS
