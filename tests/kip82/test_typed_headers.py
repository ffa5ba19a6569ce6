"""Records whose headers are an object of the user's: in, over the wire, and out."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import ConsumerRecord, Headers, ProducerRecord
from statestore.errors import DeserializationError, SerializationError
from statestore.format.records.record_v2 import BatchBase, decode_record, encode_record
from statestore.headers.conversion import from_record_v2, to_record_v2
from statestore.kip82.typed_headers import HeaderMapper, TypedRecord


@dataclass(frozen=True)
class Origin:
    cluster: str
    hops: int


def to_headers(origin: Origin) -> list[tuple[str, bytes | None]]:
    return [("cluster", origin.cluster.encode()), ("hops", origin.hops.to_bytes(2, "big"))]


def from_headers(headers: Headers) -> Origin:
    values = {header.key: header.value or b"" for header in headers}
    return Origin(values["cluster"].decode(), int.from_bytes(values["hops"], "big"))


MAPPER = HeaderMapper(to_headers, from_headers)


@given(st.text(max_size=5), st.integers(0, 2**16 - 1))
def test_an_object_goes_in_and_comes_out(cluster: str, hops: int) -> None:
    typed = TypedRecord("orders", b"k", Origin(cluster, hops), b"v", partition=3, timestamp_ms=7)
    produced = MAPPER.to_producer_record(typed)
    wire, _ = decode_record(encode_record(to_record_v2(produced, base_timestamp_ms=0)))
    consumed = from_record_v2(wire, "orders", 3, BatchBase())
    assert MAPPER.from_consumer_record(consumed) == typed


def test_other_clients_see_ordinary_headers() -> None:
    record = MAPPER.to_producer_record(TypedRecord("orders", "k", Origin("eu", 2), "v"))
    expected = [("cluster", b"eu"), ("hops", b"\0\2")]
    assert record == ProducerRecord("orders", key="k", value="v", headers=expected)


def test_errors_of_the_functions_are_chained() -> None:
    with pytest.raises(SerializationError, match=r"header object \(Origin\): ") as written:
        MAPPER.headers_of(Origin("eu", -1))
    assert isinstance(written.value.__cause__, OverflowError)
    with pytest.raises(DeserializationError, match=r"header object of 0 headers: 'cluster'") as read:
        MAPPER.from_consumer_record(ConsumerRecord("orders", 0, 0, key=None, value=None))
    assert isinstance(read.value.__cause__, KeyError)


def test_serde_errors_of_the_functions_are_their_own() -> None:
    def refuse(anything: Any) -> Any:
        raise SerializationError("my own words")

    mapper: HeaderMapper[Any] = HeaderMapper(refuse, refuse)
    for call in (mapper.headers_of, mapper.object_of):
        with pytest.raises(SerializationError, match=r"^my own words$"):
            call(Headers())


@pytest.mark.parametrize("pairs", [[(None, b"")], [("a", "text")], 5])
def test_what_a_function_returns_is_checked(pairs: Any) -> None:
    mapper: HeaderMapper[Any] = HeaderMapper(lambda header: pairs, from_headers)
    with pytest.raises(SerializationError) as caught:
        mapper.headers_of(None)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_mapper_is_picklable() -> None:
    assert pickle.loads(pickle.dumps(MAPPER)) == MAPPER
