"""HeaderPolicy: how the headers of several records become those of one. Kafka Streams keeps none of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.records.header_bytes import MIN_HEADER_SIZE, encode_headers, header_count, parse_headers
from statestore.headers.record_headers import Headers

DEFAULT_MAX_BYTES: Final = 65_536
"""How many bytes the headers of one entry may take, in KIP-1271's encoding."""
DEFAULT_MAX_COUNT: Final = 256
"""How many headers one entry may have."""

HeaderMerger: TypeAlias = "Callable[[Headers, Headers], Headers | Iterable[tuple[str, bytes | None]]]"
"""A function of the old and the new headers that returns those to keep. It may change its arguments."""

_Pairs: TypeAlias = "list[tuple[str, bytes | None]]"

_LATEST, _FIRST, _MERGE_DISTINCT, _APPEND, _NONE = _NAMES = "latest", "first", "merge_distinct", "append", "none"
_FUNCTION = "a function"


@dataclass(frozen=True)
class HeaderPolicy:
    """How the headers of an entry and those of the record that changes it become one.

    latest           those of the record that came last, whatever its timestamp
    first            those of the record that the entry began with
    merge_distinct   those of all records, in order, each once: the same key with another value is another header
    append           those of all records, in order, repetitions included
    none             none, as in Kafka Streams
    of(function)     what function(old, new) returns

    `max_bytes` and `max_count` bound what is kept: the first headers that fit stay, the rest is dropped and counted.
    """

    way: str
    max_bytes: int = DEFAULT_MAX_BYTES
    max_count: int = DEFAULT_MAX_COUNT
    function: HeaderMerger | None = None

    @classmethod
    def of(cls, policy: PolicyLike) -> HeaderPolicy:
        """Return the policy of a name or a function; a policy is returned as it is. Raises ValueError otherwise."""
        if isinstance(policy, HeaderPolicy):
            return policy
        if callable(policy):
            return cls(_FUNCTION, function=policy)
        if policy not in _NAMES:
            raise ValueError(
                f"headers must be one of {', '.join(_NAMES)}, a HeaderPolicy or a function, not {policy!r}"
            )
        return cls(policy)

    def capped(self, *, max_bytes: int | None = None, max_count: int | None = None) -> HeaderPolicy:
        """Return the policy with other bounds; None leaves one as it is. Raises ValueError for a bound below 0."""
        for name, bound in (("max_bytes", max_bytes), ("max_count", max_count)):
            if bound is not None and (type(bound) is not int or bound < 0):
                raise ValueError(f"{name} must be a whole number, 0 or more, not {bound!r}")
        return replace(
            self,
            max_bytes=self.max_bytes if max_bytes is None else max_bytes,
            max_count=self.max_count if max_count is None else max_count,
        )

    @property
    def is_of_one_record(self) -> bool:
        """Whether the headers are always those of one record, or none, so that nothing has to be parsed."""
        return self.way in (_LATEST, _FIRST, _NONE)

    @property
    def is_function(self) -> bool:
        """Whether a function decides."""
        return self.way == _FUNCTION

    @property
    def keeps_first(self) -> bool:
        """Whether the headers of the first record stay."""
        return self.way == _FIRST

    @property
    def keeps_none(self) -> bool:
        """Whether there are no headers at all."""
        return self.way == _NONE

    def fits_all(self, headers: pa.BinaryArray) -> bool:
        """Return whether all headers in a column are within the bounds. Only large ones are looked into."""
        sizes = pc.binary_length(headers)
        if (pc.max(sizes).as_py() or 0) > self.max_bytes:
            return False
        larger = headers.filter(pc.greater(sizes, MIN_HEADER_SIZE * self.max_count))
        return all(header_count(each) <= self.max_count for each in larger.to_pylist())

    def merge(self, old: bytes | None, new: bytes) -> tuple[bytes, int]:
        """Return the bytes of the headers, and how many did not fit; `old` is None where there is no entry yet.

        Both are in KIP-1271's encoding. Raises FormatError if they have to be parsed and can't be, and TypeError if a
        function returns something else than headers.
        """
        way = self.way
        if way == _NONE:
            return b"", 0
        if way == _FIRST and old is not None:
            return old, 0
        if way in (_LATEST, _FIRST) or (old is None and way != _FUNCTION):
            return self._bounded_bytes(new)
        if way == _FUNCTION:
            assert self.function is not None  # made by `of`
            merged = self.function(Headers.from_bytes(old or b""), Headers.from_bytes(new))
            return self._bounded_bytes(Headers(merged).to_bytes())
        if not new:
            return old or b"", 0
        there = parse_headers(old or b"")
        return self._bounded(there + _coming(there, parse_headers(new), distinct=way == _MERGE_DISTINCT))

    def _bounded_bytes(self, headers: bytes) -> tuple[bytes, int]:
        if self.way == _MERGE_DISTINCT and header_count(headers) > 1:
            pairs = parse_headers(headers)
            distinct = _coming([], pairs, distinct=True)
            if len(distinct) < len(pairs):
                return self._bounded(distinct)
        is_few = len(headers) <= MIN_HEADER_SIZE * self.max_count or header_count(headers) <= self.max_count
        if is_few and len(headers) <= self.max_bytes:
            return headers, 0
        return self._bounded(parse_headers(headers))

    def _bounded(self, pairs: _Pairs) -> tuple[bytes, int]:
        kept = pairs[: self.max_count]
        encoded = encode_headers(kept)
        if len(encoded) > self.max_bytes:
            fitting = bisect_right(range(1, len(kept) + 1), self.max_bytes, key=lambda n: len(encode_headers(kept[:n])))
            kept = kept[:fitting]
            encoded = encode_headers(kept)
        return encoded, len(pairs) - len(kept)


def _coming(there: _Pairs, new: _Pairs, *, distinct: bool) -> _Pairs:
    """Return which new headers are added to those that are there."""
    if not distinct:
        return new
    known = set(there)
    return [pair for pair in dict.fromkeys(new) if pair not in known]


PolicyLike: TypeAlias = "HeaderPolicy | HeaderMerger | str"
"""A HeaderPolicy, the name of one, or a function of the old and the new Headers."""
