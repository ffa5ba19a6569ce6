"""TypedHeaders: the headers of a record as a converter reads them, each when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from statestore.connect.converters.base import HeaderConverter
from statestore.connect.header import ConnectHeader, header_in_errors
from statestore.connect.headers import ConnectHeaders
from statestore.headers import Header, Headers


class TypedHeaders:
    """The headers of one record, in order, as a header converter reads them. A view: nothing can be changed through it.

    A header is read when it is asked for, and then only once: what nobody asks for may be anything. Headers that are
    written back by `write` keep their bytes unless they were changed. What is seen are the headers as they were when it
    was made.

    What looks at a header's value raises what the converter raises, with the header's key: most often DataException.
    """

    __slots__ = ("_converter", "_headers", "_read", "_topic")

    def __init__(self, headers: Headers, converter: HeaderConverter, topic: str = "") -> None:
        self._headers: Sequence[Header] = tuple(headers)
        self._converter = converter
        self._topic = topic
        self._read: list[ConnectHeader | None] = [None] * len(self._headers)

    def last_with_name(self, key: str) -> ConnectHeader | None:
        """Return the last header of this key, which is the one that counts; None if there is none."""
        places = [place for place, header in enumerate(self._headers) if header.key == key]
        return self[places[-1]] if places else None

    def all_with_name(self, key: str) -> tuple[ConnectHeader, ...]:
        """Return all headers of this key, in order."""
        return tuple(self[place] for place, header in enumerate(self._headers) if header.key == key)

    def to_connect_headers(self) -> ConnectHeaders:
        """Return all of them as a list that can be changed."""
        return ConnectHeaders(self)

    def write(self, headers: Iterable[ConnectHeader]) -> Headers:
        """Return typed headers as bytes: those that this view has read as the bytes they came as.

        Raises what the converter raises for others.
        """
        came_as = {
            id(read): header.value for read, header in zip(self._read, self._headers, strict=True) if read is not None
        }
        return Headers(
            (header.key, came_as[id(header)] if id(header) in came_as else self._bytes_of(header)) for header in headers
        )

    def _bytes_of(self, header: ConnectHeader) -> bytes | None:
        with header_in_errors(header.key):
            return self._converter.from_connect_header(self._topic, header.key, header.schema, header.value)

    def __getitem__(self, place: int) -> ConnectHeader:
        """Return the header at a place. Raises IndexError if there is none."""
        read = self._read[place]
        if read is None:
            key, value = self._headers[place]
            with header_in_errors(key):
                found = self._converter.to_connect_header(self._topic, key, value)
            read = ConnectHeader(key, None) if found is None else ConnectHeader(key, found.value, found.schema)
            self._read[place] = read
        return read

    def __iter__(self) -> Iterator[ConnectHeader]:
        """Yield the headers in order."""
        return map(self.__getitem__, range(len(self._headers)))

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._headers)

    def __contains__(self, key: object) -> bool:
        """Return whether there is a header of this key. Nothing is read."""
        return any(header.key == key for header in self._headers)

    def __repr__(self) -> str:
        return f"TypedHeaders({list(map(tuple, self._headers))!r})"
