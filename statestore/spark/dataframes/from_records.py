"""`from_records`: turns records, as `stateful` returns them, into business columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from statestore.errors import ConnectException, InputSchemaError
from statestore.errors.run import RecordColumnsError
from statestore.format.serde import STANDARD_SERDES, Serde, standard_serde
from statestore.spark import header_functions as hf
from statestore.spark.dataframes.encodings import decode, is_malformed
from statestore.spark.header_functions.lookups import ON_ERROR, no_such_value
from statestore.spark.shards.schema import HEADERS, check_choice, check_column_type

Schema: TypeAlias = str | DataType | Serde[Any]

_HEADER_TYPES: Final[Mapping[str, Callable[..., Column]]] = {
    "string": hf.header_string,
    "int": hf.header_int,
    "bigint": hf.header_long,
    "double": hf.header_double,
    "boolean": hf.header_boolean,
    "date": hf.header_date,
    "timestamp": hf.header_timestamp,
}
_ENCODINGS: Final = ", ".join(STANDARD_SERDES)
_ERROR: Final = "error"


def from_records(
    records: DataFrame,
    schema: Schema,
    *,
    key: str | None = "key",
    key_as: Schema = "string",
    value: str = "value",
    timestamp: str | None = "timestamp",
    headers: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
    on_error: str = "raise",
    error: str = "error",
) -> DataFrame:
    """Return records as columns: the key, those of the value, the timestamp, and chosen headers.

    Args:
        records: key, value, topic, timestamp and headers, as `stateful` returns them or Spark's Kafka source does.
        schema: how to read values. An encoding, as in `to_records` (string, bytes, int32, int64, double, boolean, json,
            or that serde of Serdes) makes one column; json alone is its text. JSON with a schema, as Spark writes it
            (`"total bigint, at timestamp"`) or as a StructType, makes a column of each field; any other type, one.
        key: the name of the key's column; None leaves it out.
        key_as: how to read keys, like `schema`, but always as one column.
        value: the name of the value's column, if it is one.
        timestamp: the name of the timestamp's column; None leaves it out.
        headers: the headers that become columns of the same names, and their types: binary, string, int, bigint,
            double, boolean, date, timestamp, read as `header_functions` does, or any other of Spark. The last header
            of each name counts.
        keep: which of topic, headers, partition and offset stay as they are.
        on_error: what to do about bytes that can't be read: "raise" ends the query with an error that names them;
            "null" makes them null and says why in the column `error`, which is null if all was read.
        error: the name of that column.

    All columns of a null value are null. Fields of the JSON that the schema lacks are left out; fields that the JSON
    lacks are null. Raises RecordColumnsError with everything that is wrong, ValueError for an unknown `on_error`.
    """
    return columns_of(
        records,
        schema,
        key=key,
        key_as=key_as,
        value=value,
        timestamp=timestamp,
        headers=headers,
        keep=keep,
        on_error=on_error,
        error=error,
    )


def columns_of(
    records: DataFrame,
    schema: Schema,
    *,
    key: str | None,
    key_as: Schema,
    value: str,
    timestamp: str | None,
    headers: Mapping[str, str] | None,
    keep: Collection[str],
    on_error: str = "raise",
    error: str = "error",
    key_fields: bool = False,
    computed: Mapping[str, Column] | None = None,
) -> DataFrame:
    """As `from_records`, with `computed` after the key; `key_fields` makes columns of the fields of a key."""
    check_choice("on_error", on_error, ON_ERROR)
    reading = _Reading(records)
    made: list[_Read] = []
    if key is not None:
        made.append(reading.of_bytes("key", key_as, key, fields=key_fields))
    made += [_Read(column, [name]) for name, column in (computed or {}).items()]
    made.append(reading.of_bytes("value", schema, value, fields=True))
    if timestamp is not None:
        made.append(reading.as_it_is("timestamp", timestamp))
    made += [reading.header(name, asked) for name, asked in (headers or {}).items()]
    made += [reading.as_it_is(name, name) for name in keep]
    names = [name for read in made for name in read.names] + ([error] if on_error == "null" else [])
    reading.refuse_twice(names)
    if reading.problems:
        raise RecordColumnsError("from_records", problems=reading.problems)
    # In two steps, so that JSON is read once for all its fields.
    held = records.select(*(read.held(n, on_error) for n, read in enumerate(made)), _error_of(made).alias(_ERROR))
    columns = [column for n, read in enumerate(made) for column in read.columns(n)]
    return held.select(*columns, *([F.col(_ERROR).alias(error)] if on_error == "null" else []))


@dataclass(frozen=True)
class _Read:
    """A part of a record, as it was read."""

    value: Column
    names: Sequence[str]
    """The names of the columns that it becomes."""
    problem: Column | None = None
    """A text if its bytes can't be read, else null; None if they always can."""
    is_struct: bool = False
    """Whether its fields become columns."""

    def held(self, number: int, on_error: str) -> Column:
        """Return it as one column."""
        value = self.value
        if on_error == "raise" and self.problem is not None:
            value = F.when(self.problem.isNotNull(), F.raise_error(self.problem)).otherwise(value)
        return value.alias(str(number))

    def columns(self, number: int) -> list[Column]:
        """Return the final columns, made of the one that `held` returned."""
        held = F.col(str(number))
        return [held[name].alias(name) for name in self.names] if self.is_struct else [held.alias(self.names[0])]


class _Reading:
    """Finds parts of records, and collects problems with them."""

    def __init__(self, records: DataFrame) -> None:
        self._schema = records.schema
        self.problems: list[str] = []

    def of_bytes(self, column: str, asked: Schema, name: str, *, fields: bool) -> _Read:
        """Return keys or values; `fields` makes columns of the fields of an object."""
        data = self._column(column, "binary")
        encoding, json_type = self._how(column, asked)
        value = decode(data, encoding, json_type)
        problem = F.when(is_malformed(data, value, encoding), no_such_value(column, encoding, data))
        if fields and isinstance(json_type, StructType):
            return _Read(value, json_type.fieldNames(), problem, is_struct=True)
        return _Read(value, [name], problem)

    def header(self, name: str, asked: str) -> _Read:
        """Return the last header of a key."""
        headers = self._column("headers", HEADERS)
        data = hf.header_last(headers, name)
        if asked == "binary":
            return _Read(data, [name])
        if asked in _HEADER_TYPES:
            value = _HEADER_TYPES[asked](headers, name, on_error="null")
        else:
            try:
                value = hf.header_typed(headers, name, asked, on_error="null")
            except (ParseException, ConnectException, ValueError) as cause:
                self.problems.append(f"header {name!r}: {str(cause).splitlines()[0]}")
                return _Read(data, [name])
        is_wrong = data.isNotNull() & value.isNull()
        return _Read(value, [name], F.when(is_wrong, no_such_value(f"header {name!r}", asked, data)))

    def as_it_is(self, column: str, name: str) -> _Read:
        """Return a column of the records."""
        return _Read(self._column(column, None), [name])

    def refuse_twice(self, names: Sequence[str]) -> None:
        """Collect a problem for each name that several columns would have."""
        for name, count in Counter(name.lower() for name in names).items():
            if count > 1:
                self.problems.append(f"{count} columns would be named {name!r}: give one of them another name")

    def _column(self, name: str, wanted: str | None) -> Column:
        if name not in self._schema.names:
            self.problems.append(f"{name}: is not a column of these records; there are {', '.join(self._schema.names)}")
            return F.lit(None)
        if wanted is not None:
            try:
                check_column_type(self._schema[name], wanted)
            except InputSchemaError as refused:
                self.problems.append(f"{name}: {refused.problem}")
        return F.col(name)

    def _how(self, column: str, asked: Schema) -> tuple[str, DataType | None]:
        """Return the encoding, and for JSON its type unless that is text."""
        if isinstance(asked, Serde) or (isinstance(asked, str) and asked in STANDARD_SERDES):
            try:
                return standard_serde(asked).name, None
            except ValueError as cause:
                return self._refused(f"{column}: {cause}")
        try:
            json_type = DataType.fromDDL(asked) if isinstance(asked, str) else asked
        except ParseException:
            return self._refused(f"{column}: {asked!r} is neither a schema of Spark nor one of {_ENCODINGS}")
        if isinstance(json_type, StructType | ArrayType | MapType):
            return "json", json_type
        named = json_type.simpleString() if isinstance(json_type, DataType) else repr(asked)
        words = f"{named} is neither an encoding nor an object or list of JSON"
        return self._refused(f"{column}: {words}: say one of {_ENCODINGS}")

    def _refused(self, problem: str) -> tuple[str, None]:
        self.problems.append(problem)
        return "bytes", None


def _error_of(made: Sequence[_Read]) -> Column:
    """Return all problems of a record as a text; null if there are none."""
    found = F.concat_ws("; ", *(read.problem for read in made if read.problem is not None))
    return F.when(found != "", found)
