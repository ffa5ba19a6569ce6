"""Functions of columns of headers, as Spark's Kafka source gives them; they need no store and no stateful query.

lookups          headers by their keys, and other headers made of headers
texts            values as what their texts stand for
chains           a connector's transformations
conversion       values and all headers as a header converter reads them, in Python
headers_column   what these are made of

The column `headers` is an array<struct<key:string,value:binary>>, given by name or as a Column. An array that is null
has no headers. Kafka never makes an element that is null or has a null key; such an element has no name: it stays where
headers are returned, and is left out of names and maps. A value may be null, which is not the same as no header.

What returns headers mentions a Column that it is given once, so that calls inside of calls stay small. Nothing looks at
all headers for each header.

Users import from here. Imports `connect` and `spark.schema`; no other room of `spark` needs it. Start at `lookups`.
"""

from statestore.spark.header_functions.chains import transform_records
from statestore.spark.header_functions.conversion import header_typed, typed_headers
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
