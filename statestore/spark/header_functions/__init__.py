"""Functions of columns of headers, as Spark's Kafka source gives them; they need no store and no stateful query.

lookups          headers by key, headers made of headers, and helpers of the other modules
texts            values that are texts of numbers, times and so on
chains           a connector's transformations
typed_values     values and all headers as a header converter reads them, in Python

The column `headers` is an array<struct<key:string,value:binary>>, given by name or as a Column. A null array has no
headers. Kafka never makes an element that is null or has a null key. Such an element stays where headers are returned,
and is left out of names and maps. A value may be null, which is not the same as no header.

Functions that return headers mention a given Column once, so that nested calls stay small. None takes time that is
quadratic in the number of headers.

Users import from here. Imports `connect`, `spark.shards` and `spark.query_settings`. Start at `lookups`.
"""

from statestore.spark.header_functions.chains import transform_records
from statestore.spark.header_functions.lookups import (
    drop_headers,
    has_header,
    header_last,
    header_names,
    headers_all,
    headers_to_map,
    rename_header,
    retain_latest,
    with_header,
)
from statestore.spark.header_functions.texts import (
    header_boolean,
    header_date,
    header_double,
    header_int,
    header_long,
    header_string,
    header_timestamp,
)
from statestore.spark.header_functions.typed_values import header_typed, typed_headers

__all__ = [
    "drop_headers",
    "has_header",
    "header_boolean",
    "header_date",
    "header_double",
    "header_int",
    "header_last",
    "header_long",
    "header_names",
    "header_string",
    "header_timestamp",
    "header_typed",
    "headers_all",
    "headers_to_map",
    "rename_header",
    "retain_latest",
    "transform_records",
    "typed_headers",
    "with_header",
]
