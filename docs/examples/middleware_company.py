"""Who takes part in `middleware_stack`: keys, tokens, rights, schemas, the chain of each party, and the job itself."""

from __future__ import annotations

import json
import random
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as NewKey
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.middleware import Chain
from statestore.middleware.lineage.tracing import Tracing
from statestore.middleware.schemas.schema_registry import IdPlace, TopicRegistry, avro_serde
from statestore.middleware.security.auth import Authentication, TokenKey
from statestore.middleware.security.authorization import AccessRequest, Authorization
from statestore.middleware.security.encryption import Encryption, encrypted_serde
from statestore.middleware.security.keys import AesKey, Ed25519PrivateKey, Keyring
from statestore.middleware.security.signing import Signing
from statestore.middleware.size.compression import Compression
from statestore.middleware.size.slicing import Slicing

SLICE_BYTES = 50_000
_NOTED = [{"name": "note", "type": "string"}, {"name": "scan", "type": "bytes"}]
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}, *_NOTED]}
TOTAL = {"type": "record", "name": "Total", "fields": [{"name": "total", "type": "long"}, *_NOTED]}


class Running(Processor):
    """Adds up what a customer has ordered. It knows of no middleware."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.totals = context, context.state_store("totals")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        seen = self.totals.get(record.key)
        total = (seen.value["total"] if seen else 0) + record.value["amount"]
        kept = {"total": total, "note": record.value["note"]}
        self.totals.put(record.key, ValueTimestampHeaders.make(kept, record.timestamp_ms, record.headers))
        self.context.forward(record.with_value({**kept, "scan": record.value["scan"]}))


class Party(NamedTuple):
    """Who takes part: its name, its token, and the key that it signs with."""

    name: str
    token: str
    key: Ed25519PrivateKey


class Company:
    """What all parties share: keys, who may do what, and where schemas are."""

    def __init__(self, servers: str) -> None:
        rng = random.Random()
        # Once the broker has stopped, its clients have nothing to say.
        self.kafka = {"bootstrap.servers": servers, "log_level": 0}
        secret = rng.randbytes(32)
        self.values = Keyring({"values-1": AesKey(rng.randbytes(32))}, active="values-1")
        self.tokens = Keyring({"tokens-1": TokenKey("HS256", secret)})
        self.parties = {name: _party(name, secret) for name in ("shop", "query", "guest")}
        self.signers = {name: party.key.public_key for name, party in self.parties.items()}
        self.registry = TopicRegistry("schemas", self.kafka)

    def chain(self, name: str, spans: Path) -> Chain:
        """Return the chain of a party: who emits passes it from the first to the last, who ingests backwards."""
        party = self.parties[name]
        return Chain(
            [
                Tracing(partial(tracer_provider, spans)),
                Compression(),
                Encryption(self.values),
                Authorization(may_write, audit_topic="audit"),
                Authentication(self.tokens, algorithms=["HS256"], token=party.token, audit_topic="audit"),
                self.signing(party),
                Slicing(SLICE_BYTES),
            ]
        )

    def signing(self, party: Party | None = None) -> Signing:
        """Return what signs as a party, and knows everybody's signature; nobody only verifies."""
        own = {} if party is None else {party.name: party.key}
        ring = Keyring({**self.signers, **own}, active=None if party is None else party.name)
        return Signing(ring, sign=party is not None)

    def topology(self) -> Topology:
        """Return orders -> running total -> totals; what the store holds is ciphertext on every disk."""
        topology = Topology()
        order = avro_serde(self.registry, ORDER, place=IdPlace.MD5)
        topology.add_source("orders", "orders", key_serde=Serdes.string(), value_serde=order)
        topology.add_processor("total", Running, ["orders"])
        store = Stores.persistent_timestamped_key_value_store_with_headers("totals")
        values = encrypted_serde(Serdes.json(), self.values)
        builder = Stores.timestamped_key_value_store_with_headers_builder(store, Serdes.string(), values)
        topology.add_state_store(builder, "total")
        total = avro_serde(self.registry, TOTAL, place=IdPlace.MD5)
        topology.add_sink("totals", "totals", ["total"], key_serde=Serdes.string(), value_serde=total)
        return topology


def _party(name: str, secret: bytes) -> Party:
    claims = {"sub": name, "exp": int(time.time()) + 3600}
    token = jwt.encode(claims, secret, algorithm="HS256", headers={"kid": "tokens-1"})
    return Party(name, token, Ed25519PrivateKey(NewKey.generate().private_bytes_raw()))


def may_write(request: AccessRequest) -> bool:
    """Who may write to which topic."""
    return (request.principal, request.topic) in {("shop", "orders"), ("query", "totals")}


def tracer_provider(spans: Path) -> TracerProvider:
    """Return a provider that appends spans to a file of this process."""
    provider = TracerProvider()
    name = f"{time.time_ns()}.jsonl"
    lines = (spans / name).open("a", encoding="utf-8")
    exporter = ConsoleSpanExporter(out=lines, formatter=lambda span: json.dumps(json.loads(span.to_json())) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider
