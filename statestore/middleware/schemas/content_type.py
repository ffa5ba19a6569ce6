"""The header that says how a record's value is written, as in HTTP, with its parameters.

    content-type := type "/" subtype (";" name "=" (token | quoted text))*      in ASCII, without regard to case

Source: RFC 9110, section 8.3.1; Kafka's users, the protocol binding of CloudEvents among them, name the header so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from statestore.errors import DeserializationError

CONTENT_TYPE: Final = "content-type"
"""The name of the header."""
LONGEST_CONTENT_TYPE: Final = 256
"""Bytes that a content type has at most."""

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rf"({_TOKEN}/{_TOKEN})[ \t]*")
_PARAMETER: Final = re.compile(rf';[ \t]*(?:({_TOKEN})=(?:({_TOKEN})|"((?:[^"\\]|\\.)*)"))?[ \t]*')


@dataclass(frozen=True)
class ContentType:
    """A content type, and its parameters; their names, and the type, in small letters."""

    type: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: bytes) -> ContentType:
        """Return what a header's value says. Raises DeserializationError if it is malformed, or too long."""
        if len(value) > LONGEST_CONTENT_TYPE:
            raise DeserializationError(f"a content type has more than {LONGEST_CONTENT_TYPE} bytes")
        return _parsed(value)


@lru_cache(1024)
def _parsed(value: bytes) -> ContentType:
    text = value.decode("latin-1").strip(" \t")
    found = _TYPE.match(text)
    if found is None or not text.isascii():
        raise DeserializationError(f"malformed content type of {len(text)} characters")
    parameters: dict[str, str] = {}
    at = found.end()
    while at < len(text):
        if (parameter := _PARAMETER.match(text, at)) is None:
            raise DeserializationError(f"malformed content type of {len(text)} characters")
        name, token, quoted = parameter.groups()
        if name is not None:
            parameters[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if token is None else token
        at = parameter.end()
    return ContentType(found[1].lower(), parameters)
