"""Serdes with headers, under Kafka's interfaces.

There is one kind of serde here, `Serde`; whether it looks at headers or topics is its own affair (`Serdes.of_headers`,
`Serdes.of_topics`), and who has a record's headers calls what `Serde.on_topic` returns. ExtendedSerializer and
ExtendedDeserializer give any serde the methods that Kafka's have; `serde_of` makes a serde of objects that have them.
Source: KIP-82, "Add new method to make headers accessible during de/serialization".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from statestore.format.serde import Serde, Serdes
from statestore.headers.record_headers import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class HeaderSerializer(Protocol[T_contra]):
    """An object with the method of Kafka's ExtendedSerializer."""

    def serialize(self, topic: str | None, headers: Headers, data: T_contra, /) -> bytes:
        """Return the bytes of `data`, which is never None; may add to the headers. The topic is None in a store."""


class HeaderDeserializer(Protocol[T_co]):
    """An object with the method of Kafka's ExtendedDeserializer."""

    def deserialize(self, topic: str | None, headers: Headers, data: bytes, /) -> T_co:
        """Return what the bytes stand for; they are never None. The topic is None in a store."""


@dataclass(frozen=True)
class ExtendedSerializer(Generic[T]):
    """Any serde's `serialize` with topic and headers. A plain serde works as before, and leaves the headers alone."""

    serde: Serde[T]

    def serialize(self, topic: str | None, headers: Headers, data: T | None) -> bytes | None:
        """Return the bytes of `data`, None for None; the serde may add to the headers. Raises SerializationError."""
        return None if data is None else self.serde.on_topic(topic).serialize(data, headers)


@dataclass(frozen=True)
class ExtendedDeserializer(Generic[T]):
    """Any serde's `deserialize` with topic and headers. A plain serde works as before."""

    serde: Serde[T]

    def deserialize(self, topic: str | None, headers: Headers, data: bytes | None) -> T | None:
        """Return what the bytes stand for, None for None. Raises DeserializationError."""
        return None if data is None else self.serde.on_topic(topic).deserialize(data, headers)


def serde_of(name: str, serializer: HeaderSerializer[T], deserializer: HeaderDeserializer[T]) -> Serde[T]:
    """Return the serde that calls these two, wherever a serde is taken: at sources, sinks and stores.

    They are never passed None, neither as data nor as headers: where there are no headers, they get empty ones, and
    what they add is lost. What they raise is chained to a SerdeError that names the serde.
    """
    return Serdes.of_topics(name, _SerializeWith(serializer), _DeserializeWith(deserializer))


@dataclass(frozen=True)
class _SerializeWith(Generic[T]):
    serializer: HeaderSerializer[T]

    def __call__(self, topic: str | None, headers: Headers | None, data: T) -> bytes:
        return self.serializer.serialize(topic, Headers() if headers is None else headers, data)


@dataclass(frozen=True)
class _DeserializeWith(Generic[T]):
    deserializer: HeaderDeserializer[T]

    def __call__(self, topic: str | None, headers: Headers | None, data: bytes) -> T:
        return self.deserializer.deserialize(topic, Headers() if headers is None else headers, data)
