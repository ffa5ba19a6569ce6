"""The value codecs against bytes that Kafka Streams 4.3.1 wrote, and against what it made of malformed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError, VarintError
from statestore.format.records.header_bytes import decode_headers, encode_headers
from statestore.format.records.header_columns import HEADERS_TYPE, decode_header_column, encode_header_column
from statestore.format.values import value_timestamp_headers as headed
from statestore.format.values.stored_columns import join_columns, split_columns
from statestore.format.varint import decode_varint, encode_varint

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {name: json.loads((GOLDEN / name).read_text()) for name in ("codec.json", "codec-b.json")}


def vectors(section: str) -> list[Any]:
    return [
        pytest.param(vector, id=f"{name}-{number}-{vector.get('case', '')}")
        for name, content in FILES.items()
        for number, vector in enumerate(content[section])
    ]


def pairs_of(headers: list[Any]) -> list[tuple[str, bytes | None]]:
    return [(key, None if value is None else bytes.fromhex(value)) for key, value in headers]


def one_row(value: bytes | None) -> pa.BinaryArray:
    return pa.array([value], pa.binary())


def test_the_vectors_are_all_there() -> None:
    for content in FILES.values():
        assert content["kafkaStreams"] == "4.3.1"
        assert (len(content["varint"]), len(content["encode"]), len(content["decode"])) == (15, 32, 16)


@pytest.mark.parametrize("vector", vectors("varint"))
def test_varint(vector: dict[str, Any]) -> None:
    encoded = bytes.fromhex(vector["hex"])
    assert encode_varint(vector["int"]) == encoded
    assert decode_varint(encoded, 0, "n") == (vector["int"], len(encoded))


@pytest.mark.parametrize("vector", vectors("encode"))
def test_headers(vector: dict[str, Any]) -> None:
    pairs, encoded = pairs_of(vector["headers"]), bytes.fromhex(vector["headersSerializer"])
    assert encode_headers(pairs) == encoded
    assert decode_headers(encoded) == pairs

    column = pa.array([[{"key": key, "value": value} for key, value in pairs]], HEADERS_TYPE)
    assert encode_header_column(column).to_pylist() == [encoded]
    assert decode_header_column(one_row(encoded)).equals(column)


@pytest.mark.parametrize("vector", vectors("encode"))
def test_value_timestamp_headers(vector: dict[str, Any]) -> None:
    value, timestamp_ms = bytes.fromhex(vector["value"]), vector["timestamp"]
    header_bytes = bytes.fromhex(vector["headersSerializer"])
    stored = bytes.fromhex(vector["valueTimestampHeaders"])
    assert headed.encode_value_timestamp_headers(value, timestamp_ms, header_bytes) == stored
    assert headed.split_value_timestamp_headers(stored) == (header_bytes, timestamp_ms, value)
    assert headed.plain_value(stored) == value
    assert headed.timestamped_value(stored) == bytes.fromhex(vector["valueAndTimestamp"])

    timestamps = pa.array([timestamp_ms], pa.int64())
    assert join_columns(one_row(value), timestamps, one_row(header_bytes)).to_pylist() == [stored]
    assert [column.to_pylist() for column in split_columns(one_row(stored))] == [
        [value],
        [timestamp_ms],
        [header_bytes],
    ]


@pytest.mark.parametrize("vector", vectors("encode"))
def test_value_timestamp(vector: dict[str, Any]) -> None:
    value, encoded = bytes.fromhex(vector["value"]), bytes.fromhex(vector["valueAndTimestamp"])
    assert headed.encode_value_timestamp(value, vector["timestamp"]) == encoded
    assert headed.split_value_timestamp(encoded) == (vector["timestamp"], value)


@pytest.mark.parametrize("vector", vectors("encode"))
def test_conversions(vector: dict[str, Any]) -> None:
    """Kafka converted the value as it is, so it is no sound timestamped value; neither side looks at it."""
    value = bytes.fromhex(vector["value"])
    from_plain = bytes.fromhex(vector["convertFromPlainToHeaderFormat"])
    assert headed.convert_to_header_format(value) == bytes.fromhex(vector["convertToHeaderFormat"])
    assert headed.convert_from_plain_to_header_format(value) == from_plain
    assert headed.convert_to_header_format(headed.convert_to_timestamped_format(value)) == from_plain


@pytest.mark.parametrize("nulls", [content["nulls"] for content in FILES.values()], ids=FILES)
def test_nulls(nulls: dict[str, str | None]) -> None:
    ours = {
        "headersSerializer(null)": encode_headers([]).hex(),
        "valueTimestampHeaders(value=null)": headed.encode_value_timestamp_headers(None, 1, b"headers"),
        "valueAndTimestamp(null)": headed.encode_value_timestamp(None, 1),
        "convertToHeaderFormat(null)": headed.convert_to_header_format(None),
        "convertFromPlainToHeaderFormat(null)": headed.convert_from_plain_to_header_format(None),
    }
    # A null wrapper around value, timestamp and headers does not exist here, and aggregations are another layout.
    assert (
        ours.keys()
        | {
            "valueTimestampHeaders(null)",
            "aggregationWithHeaders(null)",
            "aggregationWithHeaders(value=null)",
        }
        == nulls.keys()
    )
    assert {name: nulls[name] for name in ours} == ours


def read_whole(data: bytes) -> dict[str, Any]:
    header_bytes, timestamp_ms, value = headed.split_value_timestamp_headers(data)
    headers = [[key, None if content is None else content.hex()] for key, content in decode_headers(header_bytes)]
    return {"value": value.hex(), "timestamp": timestamp_ms, "headers": headers}


READERS = {
    "valueTimestampHeaders": read_whole,
    "rawPlainValue": lambda data: headed.plain_value(data).hex(),
    "rawTimestampedValue": lambda data: headed.timestamped_value(data).hex(),
}

# What the functions raise where Kafka raises; Kafka's exception classes vary. One error by case, whoever meets it:
ERRORS: dict[str, FormatError] = {
    "count larger than content": TruncatedError("header key size", wanted=1, got=0),
    "negative headers size": NegativeLengthError("headers", length=-1),
    "headers size beyond the end": TruncatedError("headers", wanted=63, got=5),
    "header value length -2": NegativeLengthError("header value", length=-2),
    "negative key length": NegativeLengthError("header key", length=-1),
    "no room for the timestamp": TruncatedError("timestamp", wanted=8, got=3),
    "empty input": TruncatedError("headers size", wanted=1, got=0),
    "unterminated varint": VarintError("headers size"),
}

# Where Kafka makes something of malformed bytes, and we raise: docs/formats/value-timestamp-headers.md.
STRICTER_THAN_KAFKA = {
    ("negative headers size", "rawPlainValue"): "7baa",  # the last two bytes of the timestamp and the value
    ("no room for the timestamp", "rawTimestampedValue"): "000000",  # too short for a timestamp
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("vector", vectors("decode"))
def test_malformed_bytes(vector: dict[str, Any], reader: str) -> None:
    data, outcome = bytes.fromhex(vector["hex"]), vector[reader]
    made_by_kafka = STRICTER_THAN_KAFKA.get((vector["case"], reader))
    assert made_by_kafka is None or outcome == {"ok": made_by_kafka}
    if "ok" in outcome and made_by_kafka is None:
        assert READERS[reader](data) == outcome["ok"]
        return
    with pytest.raises(FormatError) as caught:
        READERS[reader](data)
    expected = ERRORS[vector["case"]]
    assert (type(caught.value), vars(caught.value)) == (type(expected), vars(expected))


@pytest.mark.parametrize("vector", vectors("decode"))
def test_malformed_bytes_in_columns(vector: dict[str, Any]) -> None:
    """Columns do what the scalar functions do: row 1 is the vector, row 0 is sound."""
    stored = pa.array([bytes.fromhex("000000000000000000aa"), bytes.fromhex(vector["hex"])], pa.binary())
    outcome = vector["valueTimestampHeaders"]
    if "ok" not in outcome:
        with pytest.raises(type(ERRORS[vector["case"]]), match=r"^row 1: "):
            decode_header_column(split_columns(stored)[2])
        return
    values, timestamps, header_bytes = split_columns(stored)
    headers = decode_header_column(header_bytes)[1].as_py()
    assert values[1].as_py().hex() == outcome["ok"]["value"]
    assert timestamps[1].as_py() == outcome["ok"]["timestamp"]
    assert [(header["key"], header["value"]) for header in headers] == pairs_of(outcome["ok"]["headers"])
