"""Vectors of the clients' RecordHeaders, and of records in message format v2.

Ours differs from Kafka by choice in three places, and these vectors pass if it does what is said here instead:

- A header key with half of a surrogate pair, of which Kafka writes a record that no reader takes, is refused.
- A varlong, an offset or a timestamp beyond 64 bits, which Kafka lets begin again at the other end, is refused.
- Where Java's iterators refuse to go on or to remove, Python's lists and iterators are a copy: they leave the headers
  as they are.
"""

from __future__ import annotations

from typing import Any

from statestore import Header, Headers
from statestore.errors import FormatError, HeadersFrozenError
from statestore.errors.data import NegativeLengthError, TruncatedError, VarintError
from statestore.format.records.record_v2 import BatchBase, RecordV2, decode_record, encode_record, position_of
from statestore.format.varint import decode_varint, encode_varint
from tests.support.connect.forms import Json
from tests.support.connect.header_steps import HeaderSteps
from tests.support.connect.running import error_name

_BEYOND = "64 bits"
_SIZE = "record size"


def run(vector: Json) -> Json:
    """Run the steps of a vector, or write or read one record."""
    if vector["op"] == "steps":
        return {"steps": Steps(Headers).run_all(vector)}
    return _write(vector) if vector["op"] == "writeRecord" else _read(vector)


def content(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def forms_of(headers: Any) -> Json:
    return [[key, None if value is None else value.hex()] for key, value in headers]


class Steps(HeaderSteps[Headers]):
    def error_of(self, op: str, error: Exception) -> str:
        return _error_of_step(op, error)

    def state_of(self, headers: Headers) -> Json:
        return {"headers": forms_of(headers), "readOnly": headers.is_frozen}

    def do(self, headers: Headers, step: Json, of_java: Json) -> Json | None:
        found: Json | None = getattr(self, f"do_{step['op']}")(headers, step, of_java)
        return found

    def do_add(self, headers: Headers, step: Json, _: Json) -> None:
        assert headers.add(step["key"], content(step["value"])) is headers

    def do_addHeader(self, headers: Headers, step: Json, _: Json) -> None:
        assert headers.add(Header(step["key"], content(step["value"]))) is headers

    def do_addNullHeader(self, headers: Headers, step: Json, _: Json) -> None:
        add: Any = headers.add
        add(None)

    def do_addBuffers(self, headers: Headers, step: Json, _: Json) -> None:
        parts = content(step["keyBytes"]), content(step["value"])
        sized = [encode_varint(-1) if part is None else encode_varint(len(part)) + part for part in parts]
        for header in Headers.from_bytes(encode_varint(1) + b"".join(sized)):
            headers.add(header)

    def do_remove(self, headers: Headers, step: Json, _: Json) -> None:
        assert headers.remove(step["key"]) is headers

    def do_lastHeader(self, headers: Headers, step: Json, _: Json) -> Json:
        last = headers.last_header(step["key"])
        return {"returned": None if last is None else forms_of([last])[0]}

    def do_headers(self, headers: Headers, step: Json, _: Json) -> Json:
        return {"returned": forms_of(headers.headers(step["key"]))}

    def do_setReadOnly(self, headers: Headers, step: Json, _: Json) -> None:
        headers.freeze()

    def do_copy(self, headers: Headers, step: Json, _: Json) -> None:
        self.named[step["as"]] = Headers(headers)

    def do_copyArray(self, headers: Headers, step: Json, _: Json) -> None:
        self.named[step["as"]] = Headers(list(headers))

    def do_equals(self, headers: Headers, step: Json, of_java: Json) -> Json:
        # Ours have no hash: they can be changed.
        return {"returned": headers == self.named[step["other"]], "sameHash": of_java.get("sameHash")}

    def do_iteratorRemove(self, headers: Headers, step: Json, _: Json) -> None:
        kept = list(headers)
        del kept[step["index"]]
        for header in list(headers):
            headers.remove(header.key)
        for header in kept:
            headers.add(header)

    def do_headersRemove(self, headers: Headers, step: Json, _: Json) -> Json:
        before = list(headers)
        del headers.headers(step["key"])[0]
        assert list(headers) == before
        return {"error": "UnsupportedOperationException"}

    def do_addWhileIterating(self, headers: Headers, step: Json, of_java: Json) -> Json:
        before = list(headers)
        iterator = iter(headers)
        found = [next(iterator)]
        self.do_add(headers, step, of_java)
        assert [*found, *iterator] == before
        return {"error": "ConcurrentModificationException"}

    def do_readOnlyThenIteratorRemove(self, headers: Headers, step: Json, _: Json) -> None:
        headers.freeze().remove(next(iter(headers)).key)


def _error_of_step(op: str, error: Exception) -> str:
    if isinstance(error, TypeError):
        return "NullPointerException" if op.startswith("add") else "IllegalArgumentException"
    known = {
        HeadersFrozenError: "IllegalStateException",
        IndexError: "NoSuchElementException",
        StopIteration: "NoSuchElementException",
        NegativeLengthError: "NullPointerException",  # a key without bytes
    }
    return known.get(type(error)) or error_name(error)


def _write(vector: Json) -> Json:
    headers: Any = tuple((key, content(value)) for key, value in vector["headers"])
    record = RecordV2(
        timestamp_delta=vector["timestampDelta"],
        offset_delta=vector["offsetDelta"],
        key=content(vector["key"]),
        value=content(vector["value"]),
        headers=headers,
    )
    try:
        written = encode_record(record)
    except TypeError:
        return {"error": "IllegalArgumentException"}  # a key that is null
    except UnicodeEncodeError:
        return dict(vector["result"])
    assert decode_record(written) == (record, len(written))
    return {"bytes": written.hex(), "size": len(written)}


def _read(vector: Json) -> Json:
    data = bytes.fromhex(vector["bytes"])
    base = BatchBase(vector["baseOffset"], vector["baseTimestamp"], vector["baseSequence"], vector.get("logAppendTime"))
    try:
        record, end = decode_record(data)
    except TruncatedError as error:
        return {"error": "BufferUnderflowException" if error.what == _SIZE else "InvalidRecordException"}
    except VarintError as error:
        return {"error": "IllegalArgumentException" if error.what == _SIZE else "InvalidRecordException"}
    except FormatError as error:
        return dict(vector["result"]) if _BEYOND in error.problem else {"error": "InvalidRecordException"}
    try:
        position = position_of(record, base)
    except FormatError as error:
        if _BEYOND not in error.problem:
            raise
        return dict(vector["result"])
    size, _ = decode_varint(data, 0, _SIZE)
    return {
        "size": len(encode_varint(size)) + size,  # Kafka counts the shortest form, however the size was written
        "offset": position.offset,
        "timestamp": position.timestamp_ms,
        "sequence": position.sequence,
        "attributes": record.attributes,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "headers": forms_of(record.headers),
        "bytesLeft": len(data) - end,
    }
