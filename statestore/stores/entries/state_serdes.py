"""The serdes of a store, with and without headers. Source: Kafka's StateSerdes, KIP-1271."""

from __future__ import annotations

import warnings
from typing import Generic, TypeVar, overload

from statestore.format.serde import Serde
from statestore.headers.record_headers import Headers

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
        self._keys = key_serde.on_topic(None)
        self._values = value_serde.on_topic(None)

    @overload
    def key_from(self, raw_key: None, headers: Headers | None = None) -> None: ...

    @overload
    def key_from(self, raw_key: bytes, headers: Headers | None = None) -> K: ...

    def key_from(self, raw_key: bytes | None, headers: Headers | None = None) -> K | None:
        """Return the key in `raw_key`. Raises DeserializationError."""
        given = _warn_of_no_headers("key_from") if headers is None else headers
        return None if raw_key is None else self._keys.deserialize(raw_key, given)

    @overload
    def value_from(self, raw_value: None, headers: Headers | None = None) -> None: ...

    @overload
    def value_from(self, raw_value: bytes, headers: Headers | None = None) -> V: ...

    def value_from(self, raw_value: bytes | None, headers: Headers | None = None) -> V | None:
        """Return the value in `raw_value`. Raises DeserializationError."""
        given = _warn_of_no_headers("value_from") if headers is None else headers
        return None if raw_value is None else self._values.deserialize(raw_value, given)

    @overload
    def raw_key(self, key: None, headers: Headers | None = None) -> None: ...

    @overload
    def raw_key(self, key: K, headers: Headers | None = None) -> bytes: ...

    def raw_key(self, key: K | None, headers: Headers | None = None) -> bytes | None:
        """Return the bytes of a key; the serde may add to the headers. Raises SerializationError."""
        given = _warn_of_no_headers("raw_key") if headers is None else headers
        return None if key is None else self._keys.serialize(key, given)

    @overload
    def raw_value(self, value: None, headers: Headers | None = None) -> None: ...

    @overload
    def raw_value(self, value: V, headers: Headers | None = None) -> bytes: ...

    def raw_value(self, value: V | None, headers: Headers | None = None) -> bytes | None:
        """Return the bytes of a value; the serde may add to the headers. Raises SerializationError."""
        given = _warn_of_no_headers("raw_value") if headers is None else headers
        return None if value is None else self._values.serialize(value, given)


def _warn_of_no_headers(method: str) -> Headers:
    warnings.warn(
        f"StateSerdes.{method} without headers is deprecated (KIP-1271): pass the record's headers",
        DeprecationWarning,
        stacklevel=3,
    )
    return Headers()
