"""Schemas of orders, older and newer, and registries that keep them."""

from __future__ import annotations

from typing import Any

from statestore import Headers
from statestore.middleware.schemas import schema_registry as sr

TOPIC = "orders"
ADDRESSES = iter(f"mock://{number}" for number in range(1000))


def record_of(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": list(fields)}


OLD = record_of("Order", {"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]})
NEW = record_of(
    "Order",
    {"name": "id", "type": "long"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "mark", "type": "bytes", "default": "\u00ff"},
)
OTHER = record_of("Order", {"name": "id", "type": "string"})
ORDER = {"id": 5, "note": "now"}


def next_address() -> str:
    """Return the address of a registry in the process that nobody has asked."""
    return next(ADDRESSES)


def confluent() -> sr.ConfluentRegistry:
    return sr.ConfluentRegistry(next_address())


def written(serde: Any, value: Any, topic: str | None = TOPIC) -> tuple[bytes, Headers]:
    headers = Headers()
    return serde.on_topic(topic).serialize(value, headers), headers


def read(serde: Any, data: bytes, headers: Any, topic: str | None = TOPIC) -> Any:
    """Return what a serde reads on a topic, None = in a store."""
    return serde.on_topic(topic).deserialize(data, headers)
