"""The serdes of a store, with and without headers. Source: Kafka's StateSerdes, KIP-1271."""

from __future__ import annotations

import warnings
from typing import Generic, TypeVar

from statestore.format.serde import Serde
from statestore.headers import Headers

K = TypeVar("K")
V = TypeVar("V")


class StateSerdes(Generic[K, V]):
    """Key and value serde of the store `state_name`.

    The methods take the record's headers, for serdes that read or add some. Without them they still work, as deprecated
    methods do: they warn. None is passed through as None.
    """

    def __init__(self, state_name: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.state_name = state_name
        self.key_serde = key_serde
        self.value_serde = value_serde

    def key_from(self, raw_key: bytes | None, headers: Headers | None = None) -> K | None:
        """Return the key in `raw_key`. Raises DeserializationError."""
        return _deserialized(self.key_serde, raw_key, _given(headers, "key_from"))

    def value_from(self, raw_value: bytes | None, headers: Headers | None = None) -> V | None:
        """Return the value in `raw_value`. Raises DeserializationError."""
        return _deserialized(self.value_serde, raw_value, _given(headers, "value_from"))

    def raw_key(self, key: K | None, headers: Headers | None = None) -> bytes | None:
        """Return the bytes of a key; the serde may add to the headers. Raises SerializationError."""
        return _serialized(self.key_serde, key, _given(headers, "raw_key"))

    def raw_value(self, value: V | None, headers: Headers | None = None) -> bytes | None:
        """Return the bytes of a value; the serde may add to the headers. Raises SerializationError."""
        return _serialized(self.value_serde, value, _given(headers, "raw_value"))


def _given(headers: Headers | None, method: str) -> Headers:
    if headers is None:
        warnings.warn(
            f"StateSerdes.{method} without headers is deprecated (KIP-1271): pass the record's headers",
            DeprecationWarning,
            stacklevel=3,
        )
        return Headers()
    return headers


def _deserialized(serde: Serde[V], raw: bytes | None, headers: Headers) -> V | None:
    if raw is None:
        return None
    return serde.on_topic(None).deserialize(raw, headers)


def _serialized(serde: Serde[V], value: V | None, headers: Headers) -> bytes | None:
    if value is None:
        return None
    return serde.on_topic(None).serialize(value, headers)
