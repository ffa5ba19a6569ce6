r"""Offset checkpoints: text files of offsets, as Kafka Streams before 4.3 left them in a task's directory.

    file  := "0" "\n" count "\n" line[count]
    line  := topic " " partition " " offset "\n"

`.checkpoint` holds the changelogs' offsets of all stores of the task, and `STORE.position` the input offsets that one
store has taken in. Numbers are decimal; a topic has no whitespace in it. Source: OffsetCheckpoint of Kafka Streams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from statestore.errors import FormatError

_VERSION: Final = 0
_WHAT: Final = "offset checkpoint"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SPACE: Final = re.compile(r"[ \t\f\v]+")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


class TopicPartition(NamedTuple):
    """A partition of a topic; as a string `topic-partition`, as Kafka writes it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return a file with these offsets. Raises ValueError for a topic that is empty or has whitespace in it."""
    lines = [str(_VERSION), str(len(offsets))]
    for (topic, partition), offset in offsets.items():
        if not topic or re.search(r"\s", topic):
            raise ValueError(f"not the name of a topic: {topic!r}")
        lines.append(f"{topic} {partition} {offset}")
    return ("\n".join(lines) + "\n").encode()


def decode_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets in a file's content. Raises FormatError if it does not follow the layout."""
    try:
        lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError as cause:
        raise FormatError(_WHAT, f"is not UTF-8: {cause}") from cause
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise FormatError(_WHAT, f"has {len(lines)} lines, and should have at least 2")
    version, count = (_number(text, "version or count", bits=32) for text in lines[:2])
    if version != _VERSION:
        raise FormatError(_WHAT, f"version {version} is unknown; this release reads version {_VERSION}")
    offsets: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        words = _SPACE.split(line.rstrip(" \t\f\v"))
        if len(words) != 3 or not words[0]:
            raise FormatError(_WHAT, f"not a line of topic, partition and offset: {line[:200]!r}")
        partition = _number(words[1], "partition", bits=32)
        offsets[TopicPartition(words[0], partition)] = _number(words[2], "offset", bits=64)
    if len(offsets) != count:
        raise FormatError(_WHAT, f"has {len(offsets)} offsets, and says that it has {count}")
    return offsets


def _number(text: str, of: str, *, bits: int) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise FormatError(_WHAT, f"{of} is not an integer of {bits} bits: {text[:50]!r}")
    return number
