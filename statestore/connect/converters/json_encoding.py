"""Which characters the bytes of a JSON text are: UTF-8, or UTF-16 or UTF-32 as told by a mark or by zeros.

Source: RFC 4627, section 3; what Jackson takes for UTF-8.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from statestore.connect.converters.charsets import decode_utf16
from statestore.errors import DataException

_BAD: Final = re.compile("[\udc80-\udcff]")
_BYTE_ESCAPES: Final = "surrogateescape"


def characters_of(data: bytes, *, strict: bool) -> tuple[str, bool]:
    """Return the characters, and whether they come from UTF-8: then bytes that are none are left as surrogates.

    Raises DataException if the bytes are of no encoding, or, if `strict`, are not UTF-8.
    """
    encoding, start = ("utf-8", 3 * data.startswith(codecs.BOM_UTF8)) if strict else _encoding_of(data)
    content = data[start:]
    if encoding == "utf-8":
        text = content.decode("utf-8", _BYTE_ESCAPES)
        if strict and _BAD.search(text):
            raise _malformed("the bytes are not UTF-8")
        return text, True
    if encoding.startswith("utf-16"):
        return decode_utf16(content, encoding), False
    try:
        return content.decode(encoding, "surrogatepass"), False
    except UnicodeDecodeError as cause:
        raise _malformed("the bytes are not UTF-32") from cause


def _encoding_of(data: bytes) -> tuple[str, int]:
    """Return an encoding and where it begins. Less than two or four bytes are not enough to tell UTF-16 or UTF-32."""
    head = data[:4]
    if len(head) == 4:
        for mark, encoding in (
            (codecs.BOM_UTF32_BE, "utf-32-be"),
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF8, "utf-8"),
        ):
            if head.startswith(mark):
                return encoding, len(mark)
        used = tuple(byte != 0 for byte in head)
        if used in _UTF32:
            return _UTF32[used], 0
        if used in _WEIRD or head in (b"\x00\x00\xff\xfe", b"\xfe\xff\x00\x00"):
            raise _malformed("the bytes are in an order that nobody uses")
    if len(head) >= 2:
        if head[0] == 0:
            return "utf-16-be", 0
        if head[1] == 0:
            return "utf-16-le", 0
    return "utf-8", 0


_UTF32: Final = {
    (False, False, False, True): "utf-32-be",
    (False, False, False, False): "utf-32-be",
    (True, False, False, False): "utf-32-le",
}
_WEIRD: Final = ((False, True, False, False), (False, False, True, False))


def whole_characters(text: str, *, is_name: bool) -> str:
    """Return text with what Jackson takes for UTF-8 in place of its bad bytes. Raises DataException for others."""
    if text.isascii() or not _BAD.search(text):
        return text
    data = text.encode("utf-8", _BYTE_ESCAPES)
    characters: list[str] = []
    position = 0
    while position < len(data):
        lead = data[position]
        length = 1 if lead < 0x80 else 2 if 0xC0 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4
        tail = data[position + 1 : position + length]
        if 0x80 <= lead < 0xC0 or lead >= 0xF8 or len(tail) < length - 1 or any(byte & 0xC0 != 0x80 for byte in tail):
            raise _malformed("the bytes of a string are not UTF-8")
        code = lead if length == 1 else lead & (0xFF >> (length + 1))
        for byte in tail:
            code = code << 6 | byte & 0x3F
        if length == 3 and 0xD800 <= code <= 0xDFFF:
            raise _malformed("the bytes of a string are half a character")
        characters.append(_beyond_16_bits(code, is_name=is_name) if length == 4 else chr(code))
        position += length
    return "".join(characters)


def _beyond_16_bits(code: int, *, is_name: bool) -> str:
    rest = code - 0x10000
    high = 0xD800 + (rest >> 10) if is_name else 0xD800 | (rest >> 10)
    return chr(high & 0xFFFF) + chr(0xDC00 | rest & 0x3FF)


def _malformed(problem: str) -> DataException:
    return DataException(f"Converting byte[] to Kafka Connect data failed due to serialization error: {problem}")
