"""Values in an organisation's own wrapper: headers come out, a null value stays null."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from statestore import ConsumerRecord, Headers
from statestore.errors import DeserializationError
from statestore.errors.data import TruncatedError
from statestore.headers import TimestampType
from statestore.kip82.wrapped_values import WrappedValueImporter


def split_json(value: bytes) -> tuple[list[tuple[str, bytes | None]], bytes | None]:
    envelope = json.loads(value)
    payload = envelope["payload"]
    return (
        [(key, text.encode()) for key, text in envelope["headers"]],
        None if payload is None else base64.b64decode(payload),
    )


IMPORTER = WrappedValueImporter(split_json)


def envelope(headers: list[tuple[str, str]], payload: bytes | None) -> bytes:
    text = None if payload is None else base64.b64encode(payload).decode()
    return json.dumps({"headers": headers, "payload": text}).encode()


def record(value: bytes | None) -> ConsumerRecord[str, bytes | None]:
    return ConsumerRecord(
        "orders",
        3,
        100,
        key="k",
        value=value,
        timestamp_ms=7,
        timestamp_type=TimestampType.CREATE_TIME,
        headers=[("own", b"0")],
    )


def test_headers_are_extracted_behind_the_records_own() -> None:
    wrapped = record(envelope([("a", "1"), ("a", "2")], b"\x00payload"))
    imported = IMPORTER.import_record(wrapped)
    assert imported == ConsumerRecord(
        "orders",
        3,
        100,
        key="k",
        value=b"\x00payload",
        timestamp_ms=7,
        timestamp_type=TimestampType.CREATE_TIME,
        headers=[("own", b"0"), ("a", b"1"), ("a", b"2")],
    )
    assert list(wrapped.headers) == [("own", b"0")]


def test_a_tombstone_stays_none_and_is_not_split() -> None:
    def never(value: bytes) -> Any:
        raise AssertionError("split a tombstone")

    importer = WrappedValueImporter(never)
    headers = Headers([("own", b"0")])
    assert importer.import_value(None, headers) is None
    assert list(headers) == [("own", b"0")]
    assert importer.import_record(record(None)) == record(None)


def test_a_wrapped_delete_becomes_a_tombstone_with_headers() -> None:
    imported = IMPORTER.import_record(record(envelope([("reason", "gdpr")], None)))
    assert imported.value is None
    assert list(imported.headers) == [("own", b"0"), ("reason", b"gdpr")]


def test_an_error_names_the_record() -> None:
    with pytest.raises(DeserializationError, match="record orders-3 at offset 100: wrapped value 8 bytes: ") as caught:
        IMPORTER.import_record(record(b"not JSON"))
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def failing_after_one(value: bytes) -> tuple[Iterable[tuple[str, bytes | None]], bytes | None]:
    def pairs() -> Iterable[tuple[str, bytes | None]]:
        yield "a", b"1"
        raise TruncatedError("envelope", wanted=1, got=0)

    return pairs(), value


@pytest.mark.parametrize(
    ("split", "problem"),
    [
        (failing_after_one, "envelope: needs 1 bytes"),
        (lambda value: ([("a", b"1"), (None, b"")], value), "a header key must be a str"),
        (lambda value: ([("a", b"1"), ("b", "text")], value), "must be bytes or None"),
        (
            lambda value: ([("a", b"1")], "text"),
            "the payload of a wrapped value must be bytes, got str of 4 characters",
        ),
        (lambda value: None, "wrapped value"),
    ],
    ids=["raises late", "bad key", "bad value", "bad payload", "nothing"],
)
def test_after_an_error_no_header_was_added(split: Any, problem: str) -> None:
    headers = Headers([("own", b"0")])
    with pytest.raises(DeserializationError, match=problem):
        WrappedValueImporter(split).import_value(b"value", headers)
    assert list(headers) == [("own", b"0")]


def test_an_importer_is_picklable() -> None:
    assert pickle.loads(pickle.dumps(IMPORTER)) == IMPORTER
