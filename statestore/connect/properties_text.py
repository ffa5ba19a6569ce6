r"""Properties as text: a file of Java's properties, or a connector's configuration in JSON.

    # of a file of properties
    transforms=a, \
        b
    transforms.a.type : org.apache.kafka.connect.transforms.InsertHeader

Comments begin with "#" or "!". The first "=", ":" or blank ends a name. A "\" at the end of a line goes on in the next
one; elsewhere it stands before a character that means nothing special then, or is \t, \n, \r, \f or \uXXXX. Of one
name twice the last one counts. JSON has the properties in one object, or under "config" as Kafka's REST interface has
them. Source: Java's `Properties.load`, and Kafka Connect's REST interface.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from statestore.connect.converters.charsets import join_surrogates
from statestore.errors import ConfigException

MAX_TEXT: Final = 256 * 1024
"""Characters; a configuration has hundreds."""

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, Any]:
    """Return the properties of a text, which is JSON if it begins with "{".

    Raises ConfigException if it is too long, or malformed: the message says where.
    """
    if len(text) > MAX_TEXT:
        raise ConfigException(f"A configuration of {len(text):,} characters is too long: up to {MAX_TEXT:,} are read")
    if text.lstrip().startswith("{"):
        return _read_json(text)
    return dict(_entry(line, number) for number, line in _logical_lines(text))


def config_of(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties under "config", where Kafka's REST interface has them; all of them without it."""
    config = properties.get("config")
    return config if isinstance(config, Mapping) else properties


def _read_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as cause:
        raise ConfigException(f"The configuration is not JSON: {cause}") from cause
    properties = config_of(found)
    for name, value in properties.items():
        if isinstance(value, list | dict):
            raise ConfigException(
                f"Invalid value for configuration {name}: a list or an object, where a text is expected", name=name
            )
    return {name: _text(value) for name, value in properties.items()}


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that they go on in, without blanks before them, each with the number of its first line."""
    pieces: list[str] = []
    start = 1
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        stripped = line.lstrip(_BLANKS)
        if not pieces:
            start = number
            if stripped[:1] in ("", "#", "!"):
                continue
        goes_on = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        if len(stripped) > goes_on:
            pieces.append(stripped[:-1] if goes_on else stripped)
        if pieces and not goes_on:
            yield start, "".join(pieces)
            pieces = []
    if pieces:
        yield start, "".join(pieces)


def _entry(line: str, number: int) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in _BLANKS + "=:":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:end], number), _unescape(rest, number)


def _unescape(text: str, number: int) -> str:
    head, *escaped = text.split("\\")
    parts = [head]
    is_literal = False
    for piece in escaped:
        if is_literal:  # the backslash before this one has taken it
            parts.append(piece)
            is_literal = False
        elif not piece:
            parts.append("\\")
            is_literal = True
        elif piece[0] == "u":
            parts.append(_character(piece[1:5], number) + piece[5:])
        else:
            parts.append(_ESCAPES.get(piece[0], piece[0]) + piece[1:])
    return join_surrogates("".join(parts))


def _character(digits: str, number: int) -> str:
    if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigException(f"Malformed \\uxxxx encoding in line {number}")
    return chr(int(digits, 16))
