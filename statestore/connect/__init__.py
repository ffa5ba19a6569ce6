"""Typed headers (KIP-145): values with schemas where Kafka's headers have bytes.

scalars    Int8 to Float64: numbers of a fixed width; Instant: a point in time, what dates and times are
schema     Type, Schema, Struct, and whether a value follows a schema
logical_types  what values of the four logical types stand for
typed_map  TypedMap: a map that tells its keys apart by type
recently_used  RecentlyUsed: a cache of a bounded number of entries
recursion  conversion of nested values without a stack of calls
header     ConnectHeader, here Header too: key, schema and value
headers    ConnectHeaders, here Headers too: the typed headers of a record
records    ConnectRecord, SourceRecord, SinkRecord
values     STRICT and COMPAT: conversions between types, and between values and text
converters  what turns typed headers into bytes and back
config     ConfigDef: the properties that something has, and how they are read
properties_text  properties as text
transforms  transformations of records, in chains that a connector's configuration describes
typed_headers  TypedHeaders: a record's headers, each read when it is asked for; read_headers and write_headers
ingest     ConnectIngest: a connector's configuration, for the records that come into a query and those that fail

Users import from here. Imports `headers`; `bytestore` and all above import it. Start at `schema`.
"""

from statestore.connect.config import ConfigDef, ConfigType, Property
from statestore.connect.converters.avro.avro_converter import AvroConverter
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.json import JsonConverter
from statestore.connect.converters.registry import header_converter
from statestore.connect.converters.simple import ByteArrayConverter, SimpleHeaderConverter, StringConverter
from statestore.connect.header import ConnectHeader
from statestore.connect.headers import ConnectHeaders
from statestore.connect.ingest import ConnectIngest
from statestore.connect.records import ConnectRecord, SinkRecord, SourceRecord
from statestore.connect.scalars import Float32, Float64, Instant, Int8, Int16, Int32, Int64
from statestore.connect.schema import Schema, SchemaAndValue, Struct, Type
from statestore.connect.transforms.chain import ColumnChain, TransformChain
from statestore.connect.transforms.field_moves import HeaderFromKey, HeaderFromValue, HeaderToKey, HeaderToValue
from statestore.connect.transforms.header_steps import (
    DropHeaders,
    Filter,
    HasHeaderKey,
    InsertHeader,
    RecordIsTombstone,
)
from statestore.connect.transforms.topic_steps import TopicNameMatches
from statestore.connect.transforms.transformation import Predicate, Transformation
from statestore.connect.typed_headers import TypedHeaders, read_headers, write_headers
from statestore.connect.typed_map import TypedMap
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.connect.values.values import Values

__all__ = [
    "COMPAT",
    "STRICT",
    "AvroConverter",
    "ByteArrayConverter",
    "ColumnChain",
    "ConfigDef",
    "ConfigType",
    "ConnectHeader",
    "ConnectHeaders",
    "ConnectIngest",
    "ConnectRecord",
    "DropHeaders",
    "Filter",
    "Float32",
    "Float64",
    "HasHeaderKey",
    "HeaderConverter",
    "HeaderFromKey",
    "HeaderFromValue",
    "HeaderToKey",
    "HeaderToValue",
    "InsertHeader",
    "Instant",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "JsonConverter",
    "Predicate",
    "Property",
    "RecordIsTombstone",
    "Schema",
    "SchemaAndValue",
    "SimpleHeaderConverter",
    "SinkRecord",
    "SourceRecord",
    "StringConverter",
    "Struct",
    "TopicNameMatches",
    "TransformChain",
    "Transformation",
    "Type",
    "TypedHeaders",
    "TypedMap",
    "Values",
    "header_converter",
    "read_headers",
    "write_headers",
]
