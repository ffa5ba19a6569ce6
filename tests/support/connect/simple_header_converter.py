"""Vectors of Kafka Connect's `SimpleHeaderConverter`, on ours with its mode."""

from __future__ import annotations

from statestore.connect.converters.base import COMPAT_MODE, MODE
from statestore.connect.converters.simple import SimpleHeaderConverter
from tests.support.connect.forms import (
    Json,
    bytes_of_kafka,
    decode_bytes,
    decode_schema,
    decode_value,
    encode_bytes,
    encode_schema_and_value,
)
from tests.support.connect.running import guarded

TOPIC, KEY = "t", "h"


def run(vector: Json) -> Json:
    """Return what came of a vector."""
    with SimpleHeaderConverter() as converter:
        converter.configure({**vector.get("config", {}), MODE: COMPAT_MODE})
        if vector["op"] == "toConnectHeader":
            return encode_schema_and_value(converter.to_connect_header(TOPIC, KEY, decode_bytes(vector["bytes"])))
        schema, value = decode_schema(vector["schema"]), decode_value(vector["value"])
        written = converter.from_connect_header(TOPIC, KEY, schema, value)
        content = decode_bytes(bytes_of_kafka(vector, encode_bytes(written)))
        read = guarded(lambda: encode_schema_and_value(converter.to_connect_header(TOPIC, KEY, content)))
        return {"bytes": encode_bytes(written), "readBack": read}
