"""Avro text map: what Avro's binary encoding makes of {"type": "map", "values": "string"}.

    map   := block[..] 00
    block := count:varlong entry[count], if count > 0
           | count:varlong size:varlong entry[-count], if count < 0; size is that of the entries in bytes
    entry := key_size:varlong key:u8[key_size] value_size:varlong value:u8[value_size]

Texts are UTF-8. Written is one block with a positive count, or none for an empty map; read is every sequence of blocks.
Source: Avro specification, "Binary encoding", whose long is Kafka's varlong.
"""

from __future__ import annotations

from collections.abc import Mapping

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import decode_varlong, encode_varlong

_MIN_ENTRY_SIZE = 2


def encode_text_map(texts: Mapping[str, str]) -> bytes:
    """Return the map's bytes, entries in their order.

    Raises TypeError if a key or value is not a str, UnicodeEncodeError (a ValueError) if one holds a lone surrogate.
    """
    parts = [encode_varlong(len(texts))] if texts else []
    for text in (text for entry in texts.items() for text in entry):
        encoded = str.encode(text)
        parts += (encode_varlong(len(encoded)), encoded)
    return b"".join((*parts, b"\x00"))


def decode_text_map(data: bytes) -> dict[str, str]:
    """Return the map in `data`, entries in their order.

    Raises TruncatedError, NegativeLengthError, VarintError or FormatError where `data` does not follow the layout, if a
    key comes twice, and if there are bytes behind the map.
    """
    texts: dict[str, str] = {}
    position = 0
    while True:
        count, position = decode_varlong(data, position, "map block count")
        if count == 0:
            break
        if count < 0:
            position = _read_block_with_size(data, position, -count, texts)
        else:
            position = _read_entries(data, position, count, texts)
    if position != len(data):
        raise FormatError("map", f"has {len(data) - position} bytes behind its end")
    return texts


def _read_block_with_size(data: bytes, position: int, count: int, texts: dict[str, str]) -> int:
    size, start = decode_varlong(data, position, "map block size")
    end = _end(data, start, size, "map block")
    if _read_entries(data[:end], start, count, texts) != end:
        raise FormatError("map block", f"is not of the {size} bytes that it announces")
    return end


def _read_entries(data: bytes, position: int, count: int, texts: dict[str, str]) -> int:
    if count * _MIN_ENTRY_SIZE > len(data) - position:
        raise TruncatedError("map block", wanted=count * _MIN_ENTRY_SIZE, got=len(data) - position)
    for _ in range(count):
        key, position = _read_text(data, position, "map key")
        value, position = _read_text(data, position, "map value")
        if key in texts:
            raise FormatError("map", f"has the key {key!r} twice")
        texts[key] = value
    return position


def _read_text(data: bytes, position: int, what: str) -> tuple[str, int]:
    size, start = decode_varlong(data, position, f"{what} size")
    end = _end(data, start, size, what)
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError as cause:
        raise FormatError(what, f"is not UTF-8 ({cause.reason} at byte {cause.start})") from cause


def _end(data: bytes, start: int, size: int, what: str) -> int:
    if size < 0:
        raise NegativeLengthError(what, length=size)
    if start + size > len(data):
        raise TruncatedError(what, wanted=size, got=len(data) - start)
    return start + size
