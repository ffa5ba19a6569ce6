"""Headers and record v2 against Kafka 4.3.1: every vector of what its RecordHeaders and DefaultRecord did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statestore.errors import FormatError, HeadersFrozenError, NegativeLengthError
from statestore.format.record_v2 import BatchBase, RecordV2, decode_record, encode_record, position_of
from statestore.format.varint import encode_varint
from statestore.headers import Header, Headers

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "record_headers.json").read_text())
VECTORS: dict[str, list[dict[str, Any]]] = {
    op: [vector for vector in GOLDEN["vectors"] if vector["op"] == op] for op in ("steps", "writeRecord", "readRecord")
}

ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "NullPointerException": (TypeError,),
    "IllegalArgumentException": (TypeError,),
    "IllegalStateException": (HeadersFrozenError,),
    "NoSuchElementException": (IndexError,),
    "InvalidRecordException": (FormatError,),
    "BufferUnderflowException": (FormatError,),
}
"""What we raise where Kafka raises."""

DIFFERENT_STEPS: dict[tuple[str, int], tuple[type[Exception] | None, str]] = {
    ("record_headers-1-004", 4): (
        None,
        "headers() returns a list of the caller's own: it can be changed, the headers stay",
    ),
    ("record_headers-1-004", 6): (None, "the same: a list without headers has none to take away"),
    ("record_headers-1-007", 1): (None, "an iterator sees the headers as they were, so there is no concurrent change"),
    ("record_headers-1-008", 4): (NegativeLengthError, "a header key without bytes is malformed, not a null pointer"),
}
"""Steps that end otherwise than in Kafka: what they raise here, and why. Besides, our headers have no hash."""

REFUSED = {
    "record_headers-1-024": "a lone surrogate: Kafka writes '?', and a size too large by two, which no reader takes",
    "record_headers-1-054": "bits beyond the 64th of a varlong, which Kafka drops",
    "record_headers-1-072": "a timestamp beyond 64 bits, which Kafka lets begin again at the other end",
    "record_headers-1-073": "an offset beyond 64 bits, which Kafka lets begin again at the other end",
}
"""What Kafka makes something of, and we refuse."""

COUNTED_AS_READ = {
    "record_headers-1-066": "the size's own varint is too long: Kafka counts its shortest form, we what was read",
}


def test_the_vectors_are_all_there() -> None:
    assert GOLDEN["kafka"] == "4.3.1"
    assert {op: len(vectors) for op, vectors in VECTORS.items()} == {"steps": 9, "writeRecord": 16, "readRecord": 48}
    assert set(REFUSED) < {vector["id"] for vector in GOLDEN["vectors"]}


def by_id(vector: dict[str, Any]) -> str:
    return str(vector["id"])


def content(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def pairs_of(headers: list[Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((key, content(value)) for key, value in headers)


class Steps:
    """Named headers, and Kafka's operations on them in Python's words. `current` are those of the last step."""

    def __init__(self) -> None:
        self.named = {"a": Headers()}
        self.current = self.named["a"]

    def run(self, step: dict[str, Any]) -> Any:
        self.current = self.named[step.get("on", "a")]
        return getattr(self, f"do_{step['op']}")(step)

    def do_add(self, step: dict[str, Any]) -> None:
        assert self.current.add(step["key"], content(step["value"])) is self.current

    def do_addNullHeader(self, step: dict[str, Any]) -> None:
        add: Any = self.current.add
        add(None)

    def do_addBuffers(self, step: dict[str, Any]) -> None:
        parts = content(step["keyBytes"]), content(step["value"])
        sized = [encode_varint(-1) if part is None else encode_varint(len(part)) + part for part in parts]
        for header in Headers.from_bytes(encode_varint(1) + b"".join(sized)):
            self.current.add(header)

    def do_remove(self, step: dict[str, Any]) -> None:
        assert self.current.remove(step["key"]) is self.current

    def do_lastHeader(self, step: dict[str, Any]) -> Header | None:
        return self.current.last_header(step["key"])

    def do_headers(self, step: dict[str, Any]) -> list[Header]:
        return self.current.headers(step["key"])

    def do_setReadOnly(self, step: dict[str, Any]) -> None:
        self.current.freeze()

    def do_copy(self, step: dict[str, Any]) -> None:
        self.named[step["as"]] = Headers(self.current)

    def do_copyArray(self, step: dict[str, Any]) -> None:
        self.named[step["as"]] = Headers(list(self.current))

    def do_equals(self, step: dict[str, Any]) -> bool:
        return self.current == self.named[step["other"]]

    def do_iteratorRemove(self, step: dict[str, Any]) -> None:
        """Remove by key: Python's iterators remove nothing, and the keys of these vectors are distinct."""
        self.current.remove(list(self.current)[step["index"]].key)

    def do_headersRemove(self, step: dict[str, Any]) -> None:
        del self.current.headers(step["key"])[:1]

    def do_addWhileIterating(self, step: dict[str, Any]) -> None:
        for _ in self.current:
            self.do_add(step)

    def do_readOnlyThenIteratorRemove(self, step: dict[str, Any]) -> None:
        for header in self.current:
            self.current.freeze().remove(header.key)


@pytest.mark.parametrize("vector", VECTORS["steps"], ids=by_id)
def test_steps(vector: dict[str, Any]) -> None:
    steps = Steps()
    for number, (step, expected) in enumerate(zip(vector["steps"], vector["result"]["steps"], strict=True)):
        raised: tuple[type[Exception], ...] | type[Exception] | None = ERRORS.get(expected.get("error"))
        if (vector["id"], number) in DIFFERENT_STEPS:
            assert "error" in expected
            raised = DIFFERENT_STEPS[vector["id"], number][0]
        if raised is not None:
            with pytest.raises(raised):
                steps.run(step)
        elif step["op"] == "headers":
            assert tuple(steps.run(step)) == pairs_of(expected["returned"])
        elif step["op"] == "lastHeader":
            last = expected["returned"]
            assert steps.run(step) == (None if last is None else pairs_of([last])[0])
        else:
            assert steps.run(step) == expected.get("returned")
        assert tuple(steps.current) == pairs_of(expected["headers"])
        assert steps.current.is_frozen == expected["readOnly"]


def record_of(vector: dict[str, Any]) -> RecordV2:
    return RecordV2(
        timestamp_delta=vector["timestampDelta"],
        offset_delta=vector["offsetDelta"],
        key=content(vector["key"]),
        value=content(vector["value"]),
        headers=pairs_of(vector["headers"]),
    )


@pytest.mark.parametrize("vector", VECTORS["writeRecord"], ids=by_id)
def test_writing_a_record(vector: dict[str, Any]) -> None:
    record, result = record_of(vector), vector["result"]
    if "error" in result:
        with pytest.raises(ERRORS[result["error"]]):
            encode_record(record)
        return
    if vector["id"] in REFUSED:
        with pytest.raises(UnicodeEncodeError):
            encode_record(record)
        return
    assert encode_record(record).hex() == result["bytes"]
    assert len(encode_record(record)) == result["size"]
    assert decode_record(bytes.fromhex(result["bytes"])) == (record, result["size"])


@pytest.mark.parametrize("vector", VECTORS["readRecord"], ids=by_id)
def test_reading_a_record(vector: dict[str, Any]) -> None:
    data, result = bytes.fromhex(vector["bytes"]), vector["result"]
    base = BatchBase(vector["baseOffset"], vector["baseTimestamp"], vector["baseSequence"], vector.get("logAppendTime"))
    if "error" in result:
        with pytest.raises(ERRORS[result["error"]]):
            decode_record(data)
        return
    if vector["id"] in REFUSED:
        with pytest.raises(FormatError, match="64 bits"):
            position_of(decode_record(data)[0], base)
        return
    record, end = decode_record(data)
    assert len(data) - end == result["bytesLeft"]
    assert end == result["size"] + (vector["id"] in COUNTED_AS_READ)
    assert position_of(record, base) == (result["offset"], result["timestamp"], result["sequence"])
    assert (record.key, record.value) == (content(result["key"]), content(result["value"]))
    assert record.headers == pairs_of(result["headers"])
    assert record.attributes == result["attributes"]
