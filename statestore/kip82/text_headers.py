"""Headers as a map of texts, and three ways to write such a map.

    &=    key=value&key=value in ASCII, "" if there are none: all but letters, digits and _.-~ is percent-encoded UTF-8
    JSON  an object whose values are strings, without blanks between tokens
    Avro  what Avro's binary encoding makes of {"type": "map", "values": "string"}:

    map   := block[..] 00
    block := count:varlong entry[count], if count > 0
           | count:varlong size:varlong entry[-count], if count < 0; size is that of the entries in bytes
    entry := key_size:varlong key:u8[key_size] value_size:varlong value:u8[value_size]

One block with a positive count is written, or none for an empty map; every sequence of blocks is read.
A map has each key once, and texts are neither null nor arbitrary bytes: headers that don't fit are refused. Order is
kept here, both ways; other readers of JSON and Avro need not keep it.
Source: KIP-82, the rejected `Map<String, String>`, "String(&=), JSON, AVRO"; the Avro specification, "Binary encoding",
whose long is Kafka's varlong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from statestore.errors import FormatError, LossyHeadersError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import decode_varlong, encode_varlong, take_bytes
from statestore.headers.record_headers import Headers

__all__ = ["from_avro", "from_json", "from_text_map", "from_url", "to_avro", "to_json", "to_text_map", "to_url"]

_MIN_ENTRY_SIZE: Final = 2
_FORM: Final = "a map of texts"
_QUOTED: Final = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})*")


def to_text_map(headers: Headers) -> dict[str, str]:
    """Return the headers as a map, in their order.

    Raises LossyHeadersError if a key comes twice, or a value is null or not UTF-8.
    """
    texts: dict[str, str] = {}
    for key, value in headers:
        if key in texts:
            raise LossyHeadersError(_FORM, key=key, problem="comes twice")
        if value is None:
            raise LossyHeadersError(_FORM, key=key, problem="has a null value")
        try:
            texts[key] = value.decode()
        except UnicodeDecodeError as cause:
            raise LossyHeadersError(_FORM, key=key, problem="has a value that is not UTF-8") from cause
    return texts


def from_text_map(texts: Mapping[str, str]) -> Headers:
    """Return the headers of a map, in its order, values as UTF-8.

    Raises TypeError if a key or value is not a str, UnicodeEncodeError (a ValueError) if one holds a lone surrogate.
    """
    return Headers((key, str.encode(text)) for key, text in texts.items())


def to_url(headers: Headers) -> str:
    """Return the headers as key=value pairs joined by &. Raises LossyHeadersError as `to_text_map`."""
    return "&".join(f"{quote(key, safe='')}={quote(text, safe='')}" for key, text in to_text_map(headers).items())


def from_url(text: str) -> Headers:
    """Return the headers in key=value pairs joined by &. A + is refused: forms and URLs mean different things by it.

    Raises FormatError if a pair does not have exactly one =, a character should be percent-encoded but is not, the
    encoded bytes are not UTF-8, or a key comes twice.
    """
    texts: dict[str, str] = {}
    for pair in text.split("&") if text else ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise FormatError("&= headers", f"a pair of {len(pair)} characters has no =")
        _put_once(texts, _unquote(key), _unquote(value), "&= headers")
    return from_text_map(texts)


def _unquote(quoted: str) -> str:
    if not _QUOTED.fullmatch(quoted):
        raise FormatError("&= headers", f"a text of {len(quoted)} characters is not percent-encoded")
    try:
        return unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError as cause:
        raise FormatError("&= headers", f"a text of {len(quoted)} characters is not UTF-8") from cause


def to_json(headers: Headers) -> str:
    """Return the headers as a JSON object. Raises LossyHeadersError as `to_text_map`."""
    return json.dumps(to_text_map(headers), ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Headers:
    """Return the headers in a JSON object.

    Raises FormatError for any other text, if a value is not a string, holds a lone surrogate, or a key comes twice.
    """
    try:
        texts = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as cause:
        raise FormatError("JSON headers", str(cause)) from cause
    if not isinstance(texts, dict):
        raise FormatError("JSON headers", "are not an object")
    try:
        return from_text_map(texts)
    except UnicodeEncodeError as cause:
        raise FormatError("JSON headers", "hold a lone surrogate") from cause


def _object(pairs: list[tuple[str, Any]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, text in pairs:
        if not isinstance(text, str):
            raise FormatError("JSON headers", f"the value of {key!r} is not a string")
        _put_once(texts, key, text, "JSON headers")
    return texts


def to_avro(headers: Headers) -> bytes:
    """Return the headers as an Avro map of strings, without a schema. Raises LossyHeadersError as `to_text_map`."""
    return encode_text_map(to_text_map(headers))


def from_avro(data: bytes) -> Headers:
    """Return the headers in an Avro map of strings. Raises FormatError if `data` is not one."""
    return from_text_map(decode_text_map(data))


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
    block, end = _take_sized(data, position, "map block")
    if _read_entries(block, 0, count, texts) != len(block):
        raise FormatError("map block", f"is not of the {len(block)} bytes that it announces")
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
    encoded, end = _take_sized(data, position, what)
    try:
        return encoded.decode(), end
    except UnicodeDecodeError as cause:
        raise FormatError(what, f"is not UTF-8 ({cause.reason} at byte {cause.start})") from cause


def _take_sized(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    """Return the bytes behind a size, and the position after them."""
    size, start = decode_varlong(data, position, f"{what} size")
    if size < 0:
        raise NegativeLengthError(what, length=size)
    return take_bytes(data, start, size, what)


def _put_once(texts: dict[str, str], key: str, text: str, what: str) -> None:
    if key in texts:
        raise FormatError(what, f"have the key {key!r} twice")
    texts[key] = text
