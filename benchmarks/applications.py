"""Each application of middleware as one would set it up, for `middleware.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jwt
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from statestore import Headers, Serdes
from statestore.middleware import Interceptor
from statestore.middleware.lifetime.expiry import ExpiryHeader
from statestore.middleware.lineage.chargeback import Chargeback
from statestore.middleware.lineage.tracing.interceptor import BatchTracing
from statestore.middleware.lineage.trail import PaperTrail
from statestore.middleware.schemas.cloud_events import CloudEvents
from statestore.middleware.schemas.polyglot import Format, polyglot_serde
from statestore.middleware.schemas.schema_registry import IdPlace, Md5Registry, avro_serde
from statestore.middleware.security.auth import Authentication, TokenKey
from statestore.middleware.security.authorization import Authorization
from statestore.middleware.security.cedar import CedarPolicy
from statestore.middleware.security.encryption import Encryption, HeaderEncryption
from statestore.middleware.security.keys import AesKey, Ed25519PrivateKey, HmacKey, Keyring
from statestore.middleware.security.signing import Signing
from statestore.middleware.size.claim_check import ClaimCheck
from statestore.middleware.size.compact_headers import CompactHeaders
from statestore.middleware.size.compression import Compression, train_dictionary
from statestore.middleware.size.header_ids import HeaderRegistry
from statestore.middleware.size.header_limits import HeaderLimits
from statestore.middleware.size.slicing import Slicing

SECRET = bytes(range(32))
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}


def value_of(number: int) -> dict[str, Any]:
    return {"order": number, "customer": f"customer-{number % 1000}", "lines": ["a line"] * 12}


def recording() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return provider


def not_sampled() -> TracerProvider:
    return TracerProvider(sampler=ALWAYS_OFF)


def applications(home: Path) -> Mapping[str, Sequence[Interceptor]]:
    """Return chains of each application by its name; `home` is a directory of their own."""
    aes = Keyring({"k1": AesKey(SECRET)}, active="k1")
    samples = [json.dumps(value_of(number)).encode() for number in range(0, 50_000, 100)]
    dictionary = train_dictionary(samples, size_bytes=8192)
    token = jwt.encode({"sub": "shop", "exp": 2_000_000_000}, SECRET, algorithm="HS256", headers={"kid": "t1"})
    tokens = Authentication(Keyring({"t1": TokenKey("HS256", SECRET)}), algorithms=["HS256"], token=token)
    cedar = CedarPolicy('permit(principal == User::"shop", action, resource);')
    names = HeaderRegistry().with_range("all", 1, 99).with_ids("all", {"tenant": 1, "content-type": 2, "attempt": 3})
    trail = PaperTrail("orders", read_from_cluster="eu", produced_into_cluster="eu")
    return {
        "tracing, sampled": [BatchTracing(recording)],
        "tracing, not sampled": [BatchTracing(not_sampled)],
        "trail": [trail],
        "trail and chargeback": [trail, Chargeback()],
        "signing, HMAC": [Signing(Keyring({"k1": HmacKey(SECRET)}, active="k1"))],
        "signing, Ed25519": [Signing(Keyring({"k1": Ed25519PrivateKey(SECRET)}, active="k1"))],
        "encryption of values": [Encryption(aes)],
        "encryption of a header": [HeaderEncryption(["tenant"], aes)],
        "tokens": [tokens],
        "tokens and a function": [Authorization(lambda request: request.principal == "shop"), tokens],
        "tokens and Cedar": [Authorization(cedar), tokens],
        "compression, zstd": [Compression()],
        "compression, a dictionary": [Compression(dictionaries={1: dictionary}, dictionary=1)],
        "compression, gzip": [Compression("gzip")],
        "slicing, nothing to slice": [Slicing()],
        "claim check, nothing to check in": [ClaimCheck(home / "claims")],
        "CloudEvents": [CloudEvents("/shop", "order.made")],
        "header ids": [CompactHeaders(names)],
        "header limits": [HeaderLimits()],
        "expiry": [ExpiryHeader(3_600_000)],
    }


def serdes() -> Mapping[str, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]]:
    """Return functions that write and read a value with headers, of each serde by its name, and of plain JSON."""
    registry = Md5Registry()
    polyglot = polyglot_serde({"application/json": Format.json()}, writes="application/json")
    found = {
        "schema registry, MD5": avro_serde(registry, SCHEMA, place=IdPlace.MD5),
        "polyglot, JSON": polyglot,
        "JSON by itself": Serdes.json(),
    }
    made = {}
    for name, serde in found.items():
        on_topic, headers = serde.on_topic("orders"), Headers()
        on_topic.serialize(value_of(1), headers)

        def write(value: Any, serialize: Any = on_topic.serialize) -> bytes:
            return bytes(serialize(value, Headers()))

        def read(data: bytes, deserialize: Any = on_topic.deserialize, known: Headers = headers) -> Any:
            return deserialize(data, known)

        made[name] = (write, read)
    return made


def now_ms() -> int:
    return int(time.time() * 1000)
