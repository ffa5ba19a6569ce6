"""Between a record's headers, which are bytes, and typed ones.

Only what is looked at is converted, and what stays as it was keeps its very bytes on the way back.
Source: what Kafka Connect's workers do with `header.converter`.
"""

from __future__ import annotations

from collections.abc import Iterable

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
