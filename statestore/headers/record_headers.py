"""Header and Headers: Kafka's record headers (KIP-82), lazy over their encoded bytes.

Headers made from bytes are parsed by the first call that looks at one of them, and are written as the very same bytes
until a call changes them. So those of a record that only passes through are neither parsed nor encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import EllipsisType
from typing import NamedTuple, overload

from statestore.errors import FormatError, HeadersFrozenError
from statestore.errors.readable import shape_of
from statestore.format.records.header_bytes import decode_headers, encode_headers, header_count


class _HeaderFields(NamedTuple):
    key: str
    value: bytes | None


def _require_text(key: object) -> None:
    if not isinstance(key, str):
        whole = "; give the key alone, as in header.key" if isinstance(key, tuple) else ""
        raise TypeError(f"a header key must be a str, got {key!r}{whole}")


class Header(_HeaderFields):
    """One header: a key, which is never None, and a value, which may be. A tuple of the two."""

    __slots__ = ()

    def __new__(cls, key: str, value: bytes | None) -> Header:
        """Raise TypeError unless the key is a str and the value bytes or None, ValueError for a lone surrogate."""
        _require_text(key)
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"the value of header {key!r} must be bytes or None, got {type(value).__name__}")
        if not key.isascii():
            key.encode()  # a lone surrogate is refused here, where it comes from, and not when the record is written
        return super().__new__(cls, key, value)


def _checked_pairs(pairs: Iterable[tuple[str, bytes | None]]) -> tuple[Header, ...]:
    """Return keys and values as headers. Raises TypeError that says what to write, and what `Header` raises."""
    instead: dict[type, str] = {
        dict: "a dict, whose keys can't repeat: write Headers(list(pairs.items()))",
        str: "a str: write Headers([(key, value)])",
        bytes: "bytes: write Headers.from_bytes(data)",
        type(None): "None: write Headers() for none",
    }
    for kind, problem in instead.items():
        if isinstance(pairs, kind):
            raise TypeError(f"headers are keys and values in pairs, not {problem}")
    found = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"headers are keys and values in pairs, and {shape_of(pair)} is not such a pair: "
                "write Headers([(key, value), ...])"
            )
        found.append(Header(*pair))
    return tuple(found)


_as_header: Callable[[tuple[str, bytes | None]], Header] = partial(tuple.__new__, Header)
"""Turns a decoded pair, which needs no checks, into a Header; a quarter faster than Header._make."""


class Headers:
    """The headers of one record, in order; keys may repeat. Kafka's RecordHeaders.

    Every method that looks at a header raises FormatError if the headers were made from malformed bytes. Not hashable.
    """

    __slots__ = ("_bytes", "_frozen", "_headers")

    _bytes: bytes | None
    """The encoded headers; None after a change, until they are asked for."""
    _headers: tuple[Header, ...] | None
    """The parsed headers; None until they are asked for. Never both None. A tuple, so that copies can share it."""
    _frozen: bool

    def __init__(self, pairs: Iterable[tuple[str, bytes | None]] = ()) -> None:
        """Make headers of these keys and values, in this order; of other Headers a copy, which can be changed.

        Raises what `Header` raises, and TypeError for anything but pairs. Other Headers are not parsed.
        """
        if isinstance(pairs, Headers):
            self._take(pairs)
        else:
            self._bytes = None
            self._headers = _checked_pairs(pairs)
        self._frozen = False

    @classmethod
    def from_bytes(cls, data: bytes) -> Headers:
        """Make headers of bytes in the layout of `header_bytes` (b"" for none), without looking at them."""
        headers = cls.__new__(cls)
        headers._bytes = data
        headers._headers = None
        headers._frozen = False
        return headers

    def to_bytes(self) -> bytes:
        """Return the encoded headers: the very bytes they were made from, unless they were changed since."""
        if self._bytes is None:
            self._bytes = encode_headers(self._parsed())
        return self._bytes

    @overload
    def add(self, key: str, value: bytes | None) -> Headers: ...

    @overload
    def add(self, key: Header) -> Headers: ...

    def add(self, key: str | Header, value: bytes | EllipsisType | None = ...) -> Headers:
        """Append a header, given as one or as key and value; return self. Headers of the same key stay.

        Raises what `Header` raises, and HeadersFrozenError.
        """
        if isinstance(key, Header):
            if value is not ...:
                raise TypeError("add() takes a Header, or a key and a value")
            header = key
        else:
            if value is ...:
                if isinstance(key, str):
                    raise TypeError(f"add() needs a value for header {key!r}; None is one")
                raise TypeError(
                    f"add() takes a Header, or a key and a value, not {key!r}: write add(key, value) for each of them, "
                    "or add(Header(*pair))"
                )
            header = Header(key, value)
        self._refuse_if_frozen()
        self._replace((*self._parsed(), header))
        return self

    def remove(self, key: str) -> Headers:
        """Remove every header of this key, if there are any; return self.

        Raises HeadersFrozenError, even if there are none, and TypeError if the key is not a str.
        """
        self._refuse_if_frozen()
        _require_text(key)
        headers = self._parsed()
        kept = [header for header in headers if header.key != key]
        if len(kept) < len(headers):
            self._replace(tuple(kept))
        return self

    def last_header(self, key: str) -> Header | None:
        """Return the last header of this key, which is the one that counts; None if there is none.

        Raises TypeError if the key is not a str.
        """
        _require_text(key)
        for header in reversed(self._parsed()):
            if header.key == key:
                return header
        return None

    def headers(self, key: str) -> list[Header]:
        """Return all headers of this key, in order. Raises TypeError if the key is not a str."""
        _require_text(key)
        return [header for header in self._parsed() if header.key == key]

    def copy(self) -> Headers:
        """Return headers equal to these that can be changed, even if these are frozen. Nothing is parsed."""
        copied = self.__class__.__new__(self.__class__)
        copied._bytes = self._bytes
        copied._headers = self._headers
        copied._frozen = False
        return copied

    def _take(self, other: Headers) -> None:
        """Hold what `other` holds from now on; both stay independent."""
        self._bytes = other._bytes
        self._headers = other._headers

    def freeze(self) -> Headers:
        """Make `add` and `remove` raise HeadersFrozenError from now on, for good; return self."""
        self._frozen = True
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether `freeze` was called."""
        return self._frozen

    def _parsed(self) -> tuple[Header, ...]:
        if self._headers is None:
            assert self._bytes is not None
            self._headers = tuple(map(_as_header, decode_headers(self._bytes)))
        return self._headers

    def _replace(self, headers: tuple[Header, ...]) -> None:
        self._headers = headers
        self._bytes = None

    def _refuse_if_frozen(self) -> None:
        if self._frozen:
            raise HeadersFrozenError()

    def __iter__(self) -> Iterator[Header]:
        """Yield the headers in order, as they are at the call: what is changed meanwhile is not seen."""
        return iter(self._parsed())

    def __contains__(self, item: object) -> bool:
        """Return whether there is a header of this key or, given a Header, one equal to it."""
        if isinstance(item, str):
            return any(header.key == item for header in self._parsed())
        return item in self._parsed()

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._parsed())

    def __bool__(self) -> bool:
        """Return whether there are any headers. Only their count is read, nothing is parsed."""
        if self._headers is None:
            assert self._bytes is not None
            return header_count(self._bytes) > 0
        return bool(self._headers)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same headers in the same order. Equal bytes are equal without a parse."""
        if not isinstance(other, Headers):
            return NotImplemented
        if self._bytes is not None and self._bytes == other._bytes:
            return True
        return self._parsed() == other._parsed()

    def __repr__(self) -> str:
        """Return an expression for these headers; malformed ones are shown as bytes."""
        try:
            return f"Headers({[tuple(header) for header in self._parsed()]!r})"
        except FormatError:
            return f"Headers.from_bytes({self._bytes!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the bytes, so that the unpickled headers are lazy."""
        return _unpickle, (self.__class__, self.to_bytes(), self._frozen)


blank_headers: Callable[[], Headers] = partial(object.__new__, Headers)
"""Makes Headers of nothing, to be filled in: for who makes some of every record."""


def _unpickle(cls: type[Headers], data: bytes, frozen: bool) -> Headers:
    headers = cls.from_bytes(data)
    return headers.freeze() if frozen else headers
