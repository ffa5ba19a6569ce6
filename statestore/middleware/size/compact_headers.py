"""CompactHeaders: all headers of a record as one, with ids for names, which a broker can read without key and value.

    "_h"     := headers, in the layout of `kip82.id_header_bytes` with ids of varints
    id 0     := a header that has no id: its value is KIP-1271's encoding of that one header

The layout is fixed: neither producers nor consumers choose it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import FormatError, UnknownHeaderError
from statestore.errors.middleware import CompactHeadersError
from statestore.format.records.header_columns import encode_header_column
from statestore.format.records.header_lists import add_header_column, headers_with_key, rows_of_headers
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Header, Headers
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.kip82.id_header_bytes import (
    IdForm,
    decode_id_header_column,
    decode_id_headers,
    encode_id_header_column,
    encode_id_headers,
)
from statestore.kip82.id_headers import HeaderIds
from statestore.middleware.application import Application, options
from statestore.middleware.size.header_ids import HeaderRegistry

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["COMPACT_HEADER", "CompactHeaders"]

COMPACT_HEADER: Final = "_h"
"""The header that holds all others, unless another name is given."""
_ESCAPE_ID: Final = 0


class CompactHeaders(Application):
    """Sends all headers of a record as one, with ids for names; takes them apart again where they come in.

    Their order, repeated ones, null values and headers that have no id stay as they are. Who reads the topic without
    this sees one header, and can read it by `decode`. Records without that header are left as they are.

    Raises CompactHeadersError for a record whose header is malformed, or has an id that the registry does not know.
    """

    kind = "header-ids"
    _options = options(STRING="registry! header")
    not_before: ClassVar[Mapping[str, str]] = {
        "header-encryption": "the headers that it is to encrypt are in one header by then, and have no names"
    }
    brings_in = ("*",)

    def __init__(self, ids: HeaderIds, header: str = COMPACT_HEADER) -> None:
        """Make one with ids, a HeaderRegistry or not, and the name of its header.

        In a configuration, `registry` is the path of a HeaderRegistry as JSON. Raises ValueError for an empty name, and
        if a header of the registry has the id 0; for a configuration FormatError for what is not a registry.
        """
        if not header:
            raise ValueError("header must be the name of a header, got ''")
        try:
            raise ValueError(f"header {ids.key_of(_ESCAPE_ID)!r} can't have the id {_ESCAPE_ID}: it stands for no id")
        except UnknownHeaderError:
            self.ids = ids
        self.header = header
        self.marks = (header,)

    @classmethod
    def _configured(cls, registry: str, **arguments: str) -> Self:
        try:
            return cls(HeaderRegistry.load(registry), **arguments)
        except OSError as cause:
            raise ValueError(f"the registry {registry!r} can't be read: {cause}") from cause

    def encode(self, header_bytes: bytes) -> bytes:
        """Return headers, in KIP-1271's encoding, as the bytes of the one header's value."""
        pairs = map(self._with_id, Headers.from_bytes(header_bytes))
        return encode_id_headers(pairs, IdForm.VARINT)

    def decode(self, value: bytes) -> Headers:
        """Return the headers that are in the one header's value: of a record, all that need be read.

        Raises UnknownHeaderError, and FormatError for malformed bytes.
        """
        found: list[Header] = []
        for header_id, content in decode_id_headers(value, IdForm.VARINT):
            if header_id != _ESCAPE_ID:
                found.append(Header(self.ids.key_of(header_id), content))
                continue
            escaped = list(Headers.from_bytes(content or b""))
            if len(escaped) != 1:
                raise FormatError("compact headers", f"have {len(escaped)} headers in the place of one without an id")
            found += escaped
        return Headers(found)

    def on_emit(self, record: EmittedRecord) -> list[EmittedRecord]:
        """Put all headers into one."""
        return [record.copy(headers=Headers.from_bytes(self._compact(record.headers.to_bytes())))]

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Put all headers of each record into one; keys and values are not looked at."""
        try:
            compact = encode_id_header_column(records.decoded_headers(), self.ids.id_of)
        except UnknownHeaderError:  # headers without an id are written one by one
            return _with_headers(records, self._compact)
        empty = pa.repeat(pa.scalar(b"", pa.binary()), len(records))
        packed = add_header_column(empty, self.header, compact)
        return records.with_columns(headers=pc.if_else(pc.equal(compact, b""), empty, packed))

    def on_ingest(self, record: IngestedRecord) -> list[IngestedRecord]:
        """Take the one header apart; what stands beside it comes behind. Raises CompactHeadersError."""
        return [record.copy(headers=Headers.from_bytes(self._expanded(record.headers.to_bytes())))]

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Take the one header of each record apart; keys and values are not looked at. Raises CompactHeadersError."""
        headers = records.decoded_headers()
        is_compact = headers_with_key(headers, self.header)
        if not is_compact.any():
            return records
        found = self._decoded(headers) if is_compact.all() else None
        return _with_headers(records, self._expanded) if found is None else records.with_columns(headers=found)

    def _decoded(self, headers: pa.ListArray) -> pa.BinaryArray | None:
        """Return the headers in the one header of each row; None if the rows have to be decoded one by one."""
        rows, values = rows_of_headers(headers), headers.flatten().field("value")
        if values.null_count or len(np.unique(rows)) < len(rows):
            return None
        try:
            found = decode_id_header_column(values, self.ids.key_of)
        except UnknownHeaderError:
            return None
        if found is None:
            return None
        places = np.full(len(headers), -1)
        places[rows] = np.arange(len(rows))
        return encode_header_column(found).take(pa.array(places, mask=places < 0)).fill_null(b"")

    def _compact(self, header_bytes: bytes) -> bytes:
        return Headers([(self.header, self.encode(header_bytes))]).to_bytes() if header_bytes else header_bytes

    def _expanded(self, header_bytes: bytes) -> bytes:
        if self.header.encode() not in header_bytes:
            return header_bytes
        headers = Headers.from_bytes(header_bytes)
        if (compact := headers.last_header(self.header)) is None:
            return header_bytes
        try:
            return Headers([*self.decode(compact.value or b""), *headers.remove(self.header)]).to_bytes()
        except (FormatError, UnknownHeaderError) as cause:
            raise CompactHeadersError(header=self.header, cause=str(cause)) from cause

    def _with_id(self, header: Header) -> tuple[int, bytes | None]:
        try:
            return self.ids.id_of(header.key), header.value
        except UnknownHeaderError:
            return _ESCAPE_ID, Headers([header]).to_bytes()


def _with_headers(records: RecordColumns, change: Callable[[bytes], bytes]) -> RecordColumns:
    changed = [change(header_bytes) for header_bytes in records.headers.to_pylist()]
    return records.with_columns(headers=pa.array(changed, pa.binary()))
