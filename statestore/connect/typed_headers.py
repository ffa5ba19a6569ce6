"""Between a record's headers, which are bytes, and typed ones: all of them, or each when it is asked for.

Only what is looked at is converted, and what stays as it was keeps its very bytes on the way back.
Source: what Kafka Connect's workers do with `header.converter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statestore.connect.converters.base import HeaderConverter
from statestore.connect.header import ConnectHeader
from statestore.connect.headers import ConnectHeaders
from statestore.headers.record_headers import Header, Headers


def read_headers(headers: Headers, converter: HeaderConverter, *, topic: str) -> ConnectHeaders:
    """Return a record's headers with typed values. Each is converted when its value or schema is first asked for.

    That raises what the converter raises, DataException as a rule, with the header's key.
    """
    return ConnectHeaders(ConnectHeader.of_bytes(header.key, header.value, converter, topic) for header in headers)


def write_headers(headers: Iterable[ConnectHeader], converter: HeaderConverter, *, topic: str) -> Headers:
    """Return typed headers as a record's. Those that this converter read and nobody replaced keep their bytes.

    Raises what the converter raises, DataException as a rule, with the header's key.
    """
    return Headers(Header(header.key, header.bytes_of(converter, topic)) for header in headers)


class TypedHeaders:
    """The headers of one record, in order, as a header converter reads them. A view: nothing can be changed through it.

    A header is read when it is asked for, and then only once: what nobody asks for may be anything. Headers that are
    written back by `write` keep their bytes unless they got another value. What is seen are the headers as they were
    when it was made.

    What hands out a header raises what the converter raises, with the header's key: most often DataException.
    """

    __slots__ = ("_converter", "_headers", "_topic")

    def __init__(self, headers: Headers, converter: HeaderConverter, topic: str = "") -> None:
        self._headers = read_headers(headers, converter, topic=topic)
        self._converter = converter
        self._topic = topic

    def last_with_name(self, key: str) -> ConnectHeader | None:
        """Return the last header of this key, which is the one that counts; None if there is none."""
        found = self._headers.last_with_name(key)
        return None if found is None else _read(found)

    def all_with_name(self, key: str) -> tuple[ConnectHeader, ...]:
        """Return all headers of this key, in order."""
        return tuple(map(_read, self._headers.all_with_name(key)))

    def to_connect_headers(self) -> ConnectHeaders:
        """Return all of them as a list that can be changed; each is read when its value is looked at."""
        return self._headers.duplicate()

    def write(self, headers: Iterable[ConnectHeader]) -> Headers:
        """Return typed headers as bytes: those of this view as the bytes they came as.

        Raises what the converter raises for others.
        """
        return write_headers(headers, self._converter, topic=self._topic)

    def __getitem__(self, place: int) -> ConnectHeader:
        """Return the header at a place. Raises IndexError if there is none."""
        return _read(self._headers[place])

    def __iter__(self) -> Iterator[ConnectHeader]:
        """Yield the headers in order."""
        return map(_read, self._headers)

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._headers)

    def __contains__(self, key: object) -> bool:
        """Return whether there is a header of this key."""
        return any(header.key == key for header in self._headers)

    def __repr__(self) -> str:
        return f"TypedHeaders({[header.key for header in self._headers]!r})"


def _read(header: ConnectHeader) -> ConnectHeader:
    _ = header.schema  # read now, so that its error is raised here
    return header
