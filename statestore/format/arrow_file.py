"""Arrow IPC files that anybody may have written: what a message inflates to is known before it is inflated.

    file    := "ARROW1" 0 0  message...  end  footer  footer_size:i32_le  "ARROW1"
    message := metadata: a flatbuffer, Message  body: buffers
    buffer  := inflated_size:i64_le (-1: as it is)  data        if the batch in `metadata` has a `compression`

Some KB may inflate to any number of GB, and Arrow makes room for as much as is declared. So a message inflates to at
most `MAX_INFLATED_BYTES`, or `MAX_INFLATION` times what it takes in the file: to have a lot of memory taken one has to
write a lot. A batch that inflates further, such as one huge value of zeros, is written with a `ballast`, metadata that
are there for their length.

The messages are read in their order. The footer, which says where each is, may say that of something else: only their
number is taken from it. Sources: Arrow's Message.fbs and the page "Serialization and Interprocess Communication".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from statestore.errors import FormatError

MAX_INFLATED_BYTES: Final = 64 << 20
MAX_INFLATION: Final = 256
_MAGIC_BYTES: Final = 8
_BALLAST_KEY: Final = "ballast"
# Fields of Message.fbs, by their place: Message, DictionaryBatch, RecordBatch.
_HEADER: Final = 2
_DATA: Final = 1
_BUFFERS, _COMPRESSION = 2, 3
_AS_IT_IS: Final = -1
_PREFIX_BYTES: Final = 8


def ballast(batch: pa.RecordBatch) -> dict[str, str] | None:
    """Return metadata with which `ArrowFile` reads a batch, however far it is compressed; None if it needs none."""
    inflated_bytes = pa.ipc.get_record_batch_size(batch)
    return None if inflated_bytes <= MAX_INFLATED_BYTES else {_BALLAST_KEY: " " * (inflated_bytes // MAX_INFLATION + 1)}


class ArrowFile:
    """A file, whole or mapped. Its methods raise FormatError, and what pyarrow raises, if it inflates too far."""

    def __init__(self, content: pa.Buffer) -> None:
        self._count = pa.ipc.open_file(content).num_record_batches
        self._messages = content.slice(_MAGIC_BYTES)
        self.schema: pa.Schema = pa.ipc.open_stream(self._messages).schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the record batches in order, one of which is in memory at a time, and all dictionaries so far.

        Columns that are not among `columns` are neither inflated nor there; None is all.
        """
        messages = pa.ipc.MessageReader.open_stream(self._messages)
        fields = None if columns is None else [self.schema.get_field_index(name) for name in columns]
        stream = pa.ipc.open_stream(self._messages, options=pa.ipc.IpcReadOptions(included_fields=fields))
        dictionary_bytes = 0
        for _ in range(self._count):
            dictionary_bytes = _check_up_to_batch(messages, dictionary_bytes)
            yield from islice(stream, 1)
        if next(messages, None) is not None:
            raise FormatError("Arrow file", f"it has more than the {self._count} record batches of its footer")


def _check_up_to_batch(messages: Iterator[Any], dictionary_bytes: int) -> int:
    """Read up to the next record batch; return what all dictionaries so far inflate to. Raises FormatError."""
    for message in messages:
        if message.type not in ("dictionary", "record batch"):
            continue
        inflated_bytes = dictionary_bytes + _inflated_bytes(message)
        allowed_bytes = max(MAX_INFLATED_BYTES, MAX_INFLATION * (message.metadata.size + message.body.size))
        if inflated_bytes > allowed_bytes:
            raise FormatError(
                "Arrow file",
                f"a {message.type} of {message.body.size} bytes inflates to {inflated_bytes}, and no more than "
                f"{allowed_bytes} are taken",
            )
        if message.type == "record batch":
            return dictionary_bytes
        dictionary_bytes = inflated_bytes
    raise FormatError("Arrow file", "it ends before the last record batch of its footer")


def _inflated_bytes(message: Any) -> int:
    """Return what the buffers of a message say that they inflate to; 0 if none of them is compressed."""
    if message.metadata_version != pa.ipc.MetadataVersion.V5:
        raise FormatError("Arrow file", "it was written before Arrow 1.0")  # which said elsewhere what is compressed
    try:
        metadata = memoryview(message.metadata)
        batch = _Table(metadata, *struct.unpack_from("<I", metadata)).table(_HEADER)
        if message.type == "dictionary":
            batch = batch.table(_DATA)
        if not batch.has(_COMPRESSION):
            return 0
        body = memoryview(message.body)
        return sum(_inflated_buffer_bytes(body, *place) for place in batch.pairs(_BUFFERS))
    except struct.error as cause:
        raise FormatError("Arrow file", f"its metadata are damaged ({cause})") from cause


def _inflated_buffer_bytes(body: memoryview, offset: int, size_bytes: int) -> int:
    if size_bytes == 0:
        return 0
    if offset < 0 or size_bytes < _PREFIX_BYTES or offset + size_bytes > len(body):
        raise FormatError(
            "Arrow file", f"a message has a buffer of {size_bytes} bytes at {offset}, and {len(body)} in all"
        )
    (inflated_bytes,) = struct.unpack_from("<q", body, offset)
    if inflated_bytes < _AS_IT_IS:
        raise FormatError("Arrow file", f"a buffer inflates to {inflated_bytes} bytes")
    return 0 if inflated_bytes == _AS_IT_IS else inflated_bytes


class _Table:
    """A table of a flatbuffer, which pyarrow has verified: its fields are where they must be, or missing."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._places = at - self._read("<i", at)
        (self._size_bytes,) = struct.unpack_from("<H", data, self._places)

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    def table(self, field: int) -> _Table:
        place = self._required(field)
        return _Table(self._data, place + self._read("<I", place))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the structs of two numbers that a vector consists of."""
        place = self._required(field)
        vector = place + self._read("<I", place)
        for number in range(self._read("<I", vector)):
            yield struct.unpack_from("<qq", self._data, vector + 4 + 16 * number)

    def _required(self, field: int) -> int:
        place = self._place(field)
        if place is None:
            raise FormatError("Arrow file", "a message lacks what it consists of")
        return place

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry >= self._size_bytes:
            return None
        offset = self._read("<H", self._places + entry)
        return self._at + offset if offset else None

    def _read(self, layout: str, at: int) -> int:
        (number,) = struct.unpack_from(layout, self._data, at)
        return int(number)
