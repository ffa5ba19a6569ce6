"""Encodings of text under Java's names, and what Java makes of text and bytes that do not go together.

Source: `Charset.forName`, `String.getBytes` and `String(byte[], Charset)` of Java.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from statestore.format.records.header_bytes import decode_key

_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-+:_.]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_CODECS: Final = frozenset(
    ["ascii", "koi8-r", "koi8-u", "gbk", "gb2312", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "euc_jp"]
    + ["euc_kr", "johab", "tis-620", "mac-roman", "mac-cyrillic", "mac-greek", "mac-turkish"]
    + [f"iso8859-{part}" for part in range(1, 17)]
    + [f"cp{page}" for page in ["037", 273, 424, 437, 500, 737, 775, 858, 869, 874, 949, 950, *range(1250, 1259)]]
    + [f"cp{page}" for page in [850, 852, 855, 856, 857, 860, 861, 862, 863, 864, 865, 866, 1006, 1026, 1140]]
)
"""What Python calls the encodings that Java knows too, those of Unicode apart."""

_ALIASES: Final = {
    "default": "ascii",
    "windows-31j": "cp932",
    "x-johab": "johab",
    "x-macroman": "mac-roman",
    "latin9": "iso8859-15",
}


_QUESTION_MARK: Final = "statestore-question-mark"
codecs.register_error(_QUESTION_MARK, lambda error: (b"?" * (error.end - error.start), error.end))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Charset:
    """Turns text into bytes and back. What can't be converted becomes '?' in bytes and U+FFFD in text."""

    encode: Callable[[str], bytes]
    decode: Callable[[bytes], str]

    def can_encode(self, text: str) -> bool:
        """Return whether the text comes back as it is."""
        return self.decode(self.encode(text)) == text

    def can_decode(self, data: bytes) -> bool:
        """Return whether the bytes come back as they are."""
        return self.encode(self.decode(data)) == data


def charset_of(name: str) -> Charset | None:
    """Return the encoding of a name, in any case; None if Java has none."""
    if not _LEGAL_NAME.fullmatch(name):
        return None
    lower = name.lower()
    if lower in _UNICODE:
        return _UNICODE[lower]
    try:
        found = codecs.lookup(_ALIASES.get(lower, lower.replace("iso8859_", "iso8859-")))
    except LookupError:
        return None
    if found.name not in _CODECS:
        return None
    return Charset(partial(_encode, encoding=found.name), partial(_decode, encoding=found.name))


def _encode(text: str, *, encoding: str) -> bytes:
    return _whole(text).encode(encoding, _QUESTION_MARK)


def _decode(data: bytes, *, encoding: str) -> str:
    return data.decode(encoding, "replace")


def has_surrogates(text: str) -> bool:
    """Return whether there are halves of characters in a text."""
    return _SURROGATE.search(text) is not None


def join_surrogates(text: str) -> str:
    """Return text with one character for each two surrogates that belong together."""
    if not has_surrogates(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _whole(text: str, replacement: str = "?") -> str:
    """Return text with surrogates that belong together joined, and a replacement for each that stands alone."""
    return _SURROGATE.sub(replacement, join_surrogates(text))


def decode_utf16(data: bytes, encoding: str) -> str:
    """Return what bytes in UTF-16 without a mark stand for; half a character, and half of its bytes, are U+FFFD.

    The first half of a character swallows what follows in place of the second half.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        order = "big" if encoding.endswith("be") else "little"
    units = [int.from_bytes(data[at : at + 2], order) for at in range(0, len(data) - 1, 2)]  # type: ignore[arg-type]
    found = []
    position = 0
    while position < len(units):
        unit = units[position]
        following = units[position + 1] if position + 1 < len(units) else 0
        is_high = 0xD800 <= unit < 0xDC00
        if is_high and 0xDC00 <= following < 0xE000:
            found.append(chr(0x10000 + ((unit - 0xD800) << 10) + following - 0xDC00))
        else:
            found.append("\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit))
        position += 1 + is_high
    ends_in_half = bool(units) and position > len(units)
    return "".join(found) + "\ufffd" * (len(data) % 2 and not ends_in_half)


def _utf16(mark: bytes, order: str) -> Charset:
    """Return UTF-16 that writes a mark first, and obeys the one it reads; or, if the mark is b"", neither."""

    def encode(text: str) -> bytes:
        return mark + _whole(text, "\ufffd").encode(f"utf-16-{order}") if text else b""

    def decode(data: bytes) -> str:
        read = order
        if mark:
            read = {codecs.BOM_UTF16_BE: "be", codecs.BOM_UTF16_LE: "le"}.get(data[:2], order)
            data = data[2 * data.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)) :]
        return decode_utf16(data, f"utf-16-{read}")

    return Charset(encode, decode)


def _utf32(mark: bytes, order: str, *, any_order: bool = False) -> Charset:
    def encode(text: str) -> bytes:
        return mark + _whole(text, "\ufffd").encode(f"utf-32-{order}") if text else b""

    def decode(data: bytes) -> str:
        marks = {codecs.BOM_UTF32_BE: "be", codecs.BOM_UTF32_LE: "le"}
        read = marks.get(data[:4], order)
        if data[:4] in marks and (any_order or read == order):
            data = data[4:]
        codes = (
            int.from_bytes(data[at : at + 4], "big" if read == "be" else "little") for at in range(0, len(data), 4)
        )
        whole = len(data) // 4
        return "".join(
            chr(code) if number < whole and code <= 0x10FFFF else "\ufffd" for number, code in enumerate(codes)
        )

    return Charset(encode, decode)


def _named(charset: Charset, *names: str) -> dict[str, Charset]:
    return {name.lower(): charset for name in names}


UTF8: Final = Charset(lambda text: _whole(text).encode(), decode_key)
_UNICODE: Final[dict[str, Charset]] = {
    **_named(UTF8, "UTF-8", "UTF8", "unicode-1-1-utf-8"),
    **_named(_utf16(codecs.BOM_UTF16_BE, "be"), "UTF-16", "UTF_16", "utf16", "unicode", "UnicodeBig"),
    **_named(_utf16(b"", "be"), "UTF-16BE", "UTF_16BE", "ISO-10646-UCS-2", "X-UTF-16BE", "UnicodeBigUnmarked"),
    **_named(_utf16(b"", "le"), "UTF-16LE", "UTF_16LE", "X-UTF-16LE", "UnicodeLittleUnmarked"),
    **_named(_utf16(codecs.BOM_UTF16_LE, "le"), "x-UTF-16LE-BOM", "UnicodeLittle"),
    **_named(_utf32(b"", "be", any_order=True), "UTF-32", "UTF_32", "UTF32", "ISO-10646-UCS-4"),
    **_named(_utf32(b"", "be"), "UTF-32BE", "UTF_32BE", "X-UTF-32BE"),
    **_named(_utf32(b"", "le"), "UTF-32LE", "UTF_32LE", "X-UTF-32LE"),
    **_named(_utf32(codecs.BOM_UTF32_BE, "be"), "X-UTF-32BE-BOM", "UTF_32BE_BOM", "UTF-32BE-BOM"),
    **_named(_utf32(codecs.BOM_UTF32_LE, "le"), "X-UTF-32LE-BOM", "UTF_32LE_BOM", "UTF-32LE-BOM"),
}
