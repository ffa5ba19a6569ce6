"""JSON as bytes: read into plain values and written from them, as Jackson does both for Kafka's converter.

    value := None, bool, int, float, Decimal, str, list of values, dict of values by str

Numbers with a fraction or an exponent are read as Decimals, exactly. Nesting and numbers are bounded as Jackson bounds
them; nothing recurses.

Source: Kafka's `JsonDeserializer` and `JsonSerializer`; Jackson's `StreamReadConstraints`, and what it takes for UTF-8;
RFC 4627, section 3.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from statestore.connect.converters.charsets import decode_utf16, has_surrogates, join_surrogates
from statestore.connect.values.number_text import decimal_of, decimal_text, float_text
from statestore.errors import DataException
from statestore.errors.data import NumberFormatException

MISSING: Final = object()
"""What is read where there is nothing."""

_DEEPEST: Final = 1000
_MOST_DIGITS: Final = 1000
_LONGEST_NAME: Final = 50_000
_LONGEST_STRING: Final = 20_000_000

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_BAD: Final = re.compile("[\udc80-\udcff]")
_BYTE_ESCAPES: Final = "surrogateescape"
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER: Final = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")
_ELEMENT: Final = re.compile(
    r'(?:(?P<integer>-?(?:0|[1-9][0-9]{0,17}))|"(?P<text>[^"\\\x00-\x1f\ud800-\udfff]{0,1000})")[ \t\n\r]*,[ \t\n\r]*'
)
"""An element of an array that needs no further look, and is not the last one."""
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT_ESCAPES: Final = {character: f"\\{letter}" for letter, character in _ESCAPES.items() if letter != "/"}


def read_json(data: bytes, *, strict: bool) -> Any:
    """Return the first value in the bytes, MISSING if there is none. Raises DataException if it is malformed.

    `strict` also refuses what Kafka passes over: text behind the value, a name that an object has twice, zeros before a
    number, sloppy UTF-8 and other encodings. And it keeps the sign of -0.0.
    """
    return _Reader(data, strict=strict).read()


class _Reader:
    """Reads one value; `position` is where in the text it is."""

    def __init__(self, data: bytes, *, strict: bool) -> None:
        self.strict = strict
        self.text, self.is_utf8 = _characters_of(data, strict=strict)
        self.position = 0

    def read(self) -> Any:
        self._skip_space()
        if self.position == len(self.text):
            if self.strict:
                raise self._malformed("there is nothing")
            return MISSING
        value = self._value()
        if self.strict:
            self._skip_space()
            if self.position < len(self.text):
                raise self._malformed("there is more behind the value")
        return value

    def _value(self) -> Any:
        open_: list[list[Any] | dict[str, Any]] = []
        names: list[str] = []
        while True:
            value = self._start(open_, names)
            while value is not _OPENED:
                if not open_:
                    return value
                value = self._attach(value, open_, names)

    def _start(self, open_: list[list[Any] | dict[str, Any]], names: list[str]) -> Any:
        """Read a value that is not nested, or an empty container; of another container only its beginning."""
        character = self._peek()
        if character == '"':
            return self._string()
        if character and character in "-0123456789":
            return self._number(is_root=not open_)
        if character in _LITERALS:
            return self._literal(*_LITERALS[character])
        if character not in ("[", "{"):
            raise self._malformed("no value begins")
        if len(open_) == _DEEPEST:
            raise self._malformed(f"values nest deeper than {_DEEPEST} levels")
        self._advance()
        container: list[Any] | dict[str, Any] = self._simple_elements([]) if character == "[" else {}
        if not container and self._peek() == ("]" if character == "[" else "}"):
            self.position += 1
            return container
        if isinstance(container, dict):
            names.append(self._name(container))
        open_.append(container)
        return _OPENED

    def _attach(self, value: Any, open_: list[list[Any] | dict[str, Any]], names: list[str]) -> Any:
        """Put a value into the innermost container, and return that if it is closed."""
        container = open_[-1]
        if isinstance(container, dict):
            container[names.pop()] = value
        else:
            container.append(value)
        self._skip_space()
        character = self._peek()
        if character == ",":
            self._advance()
            if isinstance(container, dict):
                names.append(self._name(container))
            else:
                self._simple_elements(container)
            return _OPENED
        if character != ("}" if isinstance(container, dict) else "]"):
            raise self._malformed("neither a comma nor an end stands")
        self.position += 1
        return open_.pop()

    def _simple_elements(self, container: list[Any]) -> list[Any]:
        """Read integers and short strings one after the other: most arrays have no other elements."""
        while found := _ELEMENT.match(self.text, self.position):
            integer = found["integer"]
            container.append(found["text"] if integer is None else int(integer))
            self.position = found.end()
        return container

    def _name(self, container: dict[str, Any]) -> str:
        if self._peek() != '"':
            raise self._malformed("no name in quotes stands")
        name = self._string(is_name=True)
        if self.strict and name in container:
            raise self._malformed("the object has a name a second time")
        self._skip_space()
        if self._peek() != ":":
            raise self._malformed("no colon stands")
        self._advance()
        return name

    def _string(self, *, is_name: bool = False) -> str:
        self.position += 1
        parts: list[str] = []
        has_escapes = False
        while True:
            plain = _PLAIN.match(self.text, self.position)
            assert plain is not None
            self.position = plain.end()
            parts.append(_whole_characters(plain[0], is_name=is_name) if self.is_utf8 else plain[0])
            character = self._peek()
            if character == '"':
                break
            if character != "\\":
                raise self._malformed("a control character stands" if character else "a string has no end")
            parts.append(self._escape())
            has_escapes = True
        self.position += 1
        found = join_surrogates("".join(parts))
        if len(found) > (_LONGEST_NAME if is_name else _LONGEST_STRING):
            raise self._malformed("a name or a string is too long")
        if is_name and has_escapes and self.is_utf8 and has_surrogates(found):
            raise self._malformed("half a character is in a name")
        return found

    def _escape(self) -> str:
        letter = self.text[self.position + 1 : self.position + 2]
        self.position += 2
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        digits = _HEX.match(self.text, self.position) if letter == "u" else None
        if digits is None:
            raise self._malformed("an escape is unknown")
        self.position += 4
        return chr(int(digits[0], 16))

    def _number(self, *, is_root: bool) -> int | Decimal:
        found = _NUMBER.match(self.text, self.position)
        if found is None:
            raise self._malformed("a number has no digits")
        whole, fraction, exponent = found.groups(default="")
        digits = whole.lstrip("0")
        if len(digits) + len(fraction) + len(exponent) > _MOST_DIGITS:
            raise self._malformed(f"a number has more than {_MOST_DIGITS} digits")
        if self.strict and len(whole) > 1 and whole[0] == "0":
            raise self._malformed("a number has a leading zero")
        self.position = found.end()
        if is_root and self._peek() not in ("", " ", "\t", "\n", "\r"):
            raise self._malformed("no space follows the number")
        if not fraction and not exponent:
            return int(found[0])
        try:
            value = decimal_of(found[0])
        except NumberFormatException as cause:
            raise self._malformed("a number has an exponent that is too large") from cause
        return value.copy_negate() if self.strict and not value and found[0][0] == "-" else value

    def _literal(self, word: str, value: bool | None) -> bool | None:
        if not self.text.startswith(word, self.position):
            raise self._malformed("a word is unknown")
        self.position += len(word)
        behind = self._peek()
        if behind >= "0" and (_goes_on(behind) or (self.is_utf8 and not behind.isascii())):
            raise self._malformed("a word is unknown")
        return value

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _advance(self) -> None:
        self.position += 1
        self._skip_space()

    def _skip_space(self) -> None:
        space = _SPACE.match(self.text, self.position)
        assert space is not None
        self.position = space.end()

    def _malformed(self, problem: str) -> DataException:
        return _serialization_error(f"{problem} at character {self.position} of the JSON")


_OPENED: Final = object()


def _goes_on(character: str) -> bool:
    """Return whether a word of Java goes on with a character."""
    if character.isascii():
        return character.isalnum() or character in "_\x7f"
    is_control = "\x80" <= character <= "\x9f"
    return character <= "\uffff" and (is_control or unicodedata.category(character) in _PARTS_OF_WORDS)


_PARTS_OF_WORDS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Nd", "Mn", "Mc", "Pc", "Sc", "Cf"})


def write_json(value: Any) -> bytes:
    """Return a value as JSON without spaces, in UTF-8; characters beyond 16 bits are written as two escapes.

    Raises DataException if it nests too deep.
    """
    parts: list[str] = []
    open_: list[tuple[Iterator[Any], str]] = [(iter((value,)), "")]
    while open_:
        elements, end = open_[-1]
        element: Any = next(elements, MISSING)
        if element is MISSING:
            open_.pop()
            parts.append(end)
            continue
        if parts and parts[-1] not in ("[", "{"):
            parts.append(",")
        if end == "}":
            parts.append(f"{_quoted(element[0])}:")
            element = element[1]
        _write(element, parts, open_)
    return "".join(parts).encode()


def _write(value: Any, parts: list[str], open_: list[tuple[Iterator[Any], str]]) -> None:
    if isinstance(value, list | dict):
        if len(open_) > _DEEPEST:
            raise DataException(f"Error serializing JSON message: values nest deeper than {_DEEPEST} levels")
        parts.append("[" if isinstance(value, list) else "{")
        open_.append((iter(value), "]") if isinstance(value, list) else (iter(value.items()), "}"))
    elif isinstance(value, str):
        parts.append(_quoted(value))
    elif value is None or isinstance(value, bool):
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, float):
        parts.append(float_text(value) if isfinite(value) else _quoted(float_text(value)))
    else:
        parts.append(decimal_text(value) if isinstance(value, Decimal) else str(int(value)))


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


# ---- which characters the bytes are: UTF-8, or UTF-16 or UTF-32 by a mark or by zeros ----


def _characters_of(data: bytes, *, strict: bool) -> tuple[str, bool]:
    """Return the characters, and whether they come from UTF-8: if so, invalid bytes are left as surrogates.

    Raises DataException if the bytes are of no encoding, or, if `strict`, are not UTF-8.
    """
    encoding, start = ("utf-8", 3 * data.startswith(codecs.BOM_UTF8)) if strict else _encoding_of(data)
    content = data[start:]
    if encoding == "utf-8":
        text = content.decode("utf-8", _BYTE_ESCAPES)
        if strict and _BAD.search(text):
            raise _serialization_error("the bytes are not UTF-8")
        return text, True
    if encoding.startswith("utf-16"):
        return decode_utf16(content, encoding), False
    try:
        return content.decode(encoding, "surrogatepass"), False
    except UnicodeDecodeError as cause:
        raise _serialization_error("the bytes are not UTF-32") from cause


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
            raise _serialization_error("the bytes are in an order that nobody uses")
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


def _whole_characters(text: str, *, is_name: bool) -> str:
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
            raise _serialization_error("the bytes of a string are not UTF-8")
        code = lead if length == 1 else lead & (0xFF >> (length + 1))
        for byte in tail:
            code = code << 6 | byte & 0x3F
        if length == 3 and 0xD800 <= code <= 0xDFFF:
            raise _serialization_error("the bytes of a string are half a character")
        characters.append(_beyond_16_bits(code, is_name=is_name) if length == 4 else chr(code))
        position += length
    return "".join(characters)


def _beyond_16_bits(code: int, *, is_name: bool) -> str:
    rest = code - 0x10000
    high = 0xD800 + (rest >> 10) if is_name else 0xD800 | (rest >> 10)
    return chr(high & 0xFFFF) + chr(0xDC00 | rest & 0x3FF)


def _serialization_error(problem: str) -> DataException:
    return DataException(f"Converting byte[] to Kafka Connect data failed due to serialization error: {problem}")
