"""Facades: stores that show less than they hold, for callers that know no timestamps or no headers.

The same store class on the same bytes, whose codec leaves out what is not shown, and fills it in when something is put.
Source: the *StoreFacade classes of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from statestore.format.values.store_format import StoreFormat
from statestore.headers.record_headers import Headers
from statestore.stores.codec import ValueCodec
from statestore.stores.holders import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders

_PLAIN, _TIMED = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED
_TIMED_HEADERS, _HEADERS = StoreFormat.TIMESTAMPED_WITH_HEADERS, StoreFormat.WITH_HEADERS
_NO_TIMESTAMP: Final = -1


class _Mapping(NamedTuple):
    """How a facade converts what its store holds, and what it is given to put; None stays None."""

    shown: Callable[[Any], Any]
    held: Callable[[Any], Any]


_MAPPINGS: Final[dict[tuple[StoreFormat, StoreFormat], _Mapping]] = {
    (_TIMED, _PLAIN): _Mapping(lambda held: held.value, lambda value: ValueAndTimestamp(value, _NO_TIMESTAMP)),
    (_TIMED_HEADERS, _PLAIN): _Mapping(
        lambda held: held.value, lambda value: ValueTimestampHeaders(value, _NO_TIMESTAMP, Headers())
    ),
    (_TIMED_HEADERS, _TIMED): _Mapping(
        lambda held: ValueAndTimestamp(held.value, held.timestamp_ms),
        lambda shown: ValueTimestampHeaders(shown.value, shown.timestamp_ms, Headers()),
    ),
    (_HEADERS, _PLAIN): _Mapping(
        lambda held: held.aggregation, lambda aggregation: AggregationWithHeaders(aggregation, Headers())
    ),
}


def facade(held: StoreFormat, shown: StoreFormat) -> Callable[[ValueCodec], ValueCodec] | None:
    """Return what makes the codec of a store of one format show another; None if the store holds less."""
    mapping = _MAPPINGS.get((held, shown))
    return None if mapping is None else partial(_map_codec, mapping)


def _map_codec(mapping: _Mapping, codec: ValueCodec) -> ValueCodec:
    encode, decode = codec.encode, codec.decode
    encode_with_key, decode_with_headers = codec.encode_with_key, codec.decode_with_headers
    shown, held = mapping
    mapped = codec._replace(
        encode=lambda value: encode(None if value is None else held(value)),
        decode=lambda stored: shown(decode(stored)),
        decode_pairs=None,
    )
    if encode_with_key is None or decode_with_headers is None:
        return mapped

    def decode_shown_with_headers(stored: bytes) -> tuple[Any, Headers]:
        holder, headers = decode_with_headers(stored)
        return shown(holder), headers

    return mapped._replace(
        encode_with_key=lambda value, raw_key: encode_with_key(None if value is None else held(value), raw_key),
        decode_with_headers=decode_shown_with_headers,
    )
