"""Headers as a map of texts, and three ways to write such a map.

    &=    key=value&key=value in ASCII, "" if there are none: all but letters, digits and _.-~ is percent-encoded UTF-8
    JSON  an object whose values are strings, without blanks between tokens
    Avro  {"type": "map", "values": "string"}, binary: `avro_text_map`

A map has each key once, and texts are neither null nor arbitrary bytes: headers that don't fit are refused. The order
is kept when written and when read back here; JSON and Avro promise it to nobody else.
Source: KIP-82, the rejected `Map<String, String>`, "String(&=), JSON, AVRO".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from statestore.errors import FormatError, LossyHeadersError
from statestore.headers.record_headers import Headers
from statestore.kip82.avro_text_map import decode_text_map, encode_text_map

__all__ = ["from_avro", "from_json", "from_text_map", "from_url", "to_avro", "to_json", "to_text_map", "to_url"]

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

    Raises FormatError if a pair has not exactly one =, a character should be percent-encoded and is not, what is
    encoded is not UTF-8, or a key comes twice.
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

    Raises FormatError if it is not one, a value is no string, a text holds a lone surrogate, or a key comes twice.
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
    """Return the headers in an Avro map of strings. Raises FormatError where `data` is none."""
    return from_text_map(decode_text_map(data))


def _put_once(texts: dict[str, str], key: str, text: str, what: str) -> None:
    if key in texts:
        raise FormatError(what, f"have the key {key!r} twice")
    texts[key] = text
