"""Each application of middleware as one would set it up, for `middleware.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from statestore.middleware import Interceptor
from statestore.middleware.compression import Compression
from statestore.middleware.encryption import Encryption, HeaderEncryption
from statestore.middleware.expiry import ExpiryHeader
from statestore.middleware.keys import AesKey, Ed25519PrivateKey, HmacKey, Keyring
from statestore.middleware.signing import Signing
from statestore.middleware.slicing import Slicing
from statestore.middleware.tracing import Tracing
from statestore.middleware.trail import PaperTrail


def recording() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return provider


def not_sampled() -> TracerProvider:
    return TracerProvider(sampler=ALWAYS_OFF)


def applications(home: Path) -> Mapping[str, Interceptor]:
    """Return each application by its name; `home` is a directory of their own."""
    aes = Keyring({"k1": AesKey(bytes(range(32)))}, active="k1")
    return {
        "tracing, sampled": Tracing(recording),
        "tracing, not sampled": Tracing(not_sampled),
        "trail": PaperTrail("orders", read_from_cluster="eu", produced_into_cluster="eu"),
        "signing, HMAC": Signing(Keyring({"k1": HmacKey(bytes(range(32)))}, active="k1"), headers=["tenant"]),
        "signing, Ed25519": Signing(Keyring({"k1": Ed25519PrivateKey(bytes(range(32)))}, active="k1")),
        "compression": Compression(),
        "encryption": Encryption(aes),
        "encryption of a header": HeaderEncryption(["tenant"], aes),
        "slicing, nothing to slice": Slicing(),
        "expiry": ExpiryHeader(3_600_000),
    }
