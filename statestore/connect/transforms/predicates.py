"""The predicates that Kafka ships. Source: KIP-585, and Kafka's classes of the same names."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from statestore.connect.config import ConfigDef, Property, every, invalid, non_empty_string
from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.transformation import HeaderRows, Predicate
from statestore.format.binary_columns import Flags
from statestore.format.records.header_lists import rows_with_key


@dataclass(frozen=True)
class HasHeaderKey(Predicate):
    """True of a record that has at least one header of a name. If the name is None, of no record, as in Kafka."""

    name: str | None
    config: ClassVar[ConfigDef] = ConfigDef(Property("name", rule=non_empty_string, doc="name of the header"))

    def __post_init__(self) -> None:
        self._settle()

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the record has such a header."""
        return self.name is not None and self.name in record.headers

    def test_columns(self, rows: HeaderRows) -> Flags:
        """Return which lists have such a header."""
        return np.zeros(len(rows.headers), np.bool_) if self.name is None else rows_with_key(rows.headers, self.name)


@dataclass(frozen=True)
class RecordIsTombstone(Predicate):
    """True of a record whose value is None."""

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the value is None."""
        return record.value is None

    def test_columns(self, rows: HeaderRows) -> Flags:
        """Return which rows have no value."""
        return ~rows.has_value


def _pattern(name: str, value: str | None) -> str | None:
    """Check that a text is a regular expression that Python reads as Java does."""
    problem = None if value is None else _java_only(value)
    if value is None or problem is not None:
        raise invalid(name, value, f"Invalid regex: {problem or 'there is none'}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python warns of, it will read otherwise one day
            re.compile(value, re.ASCII)
    except (re.error, Warning, RecursionError, OverflowError) as cause:
        raise invalid(name, value, f"Invalid regex: {cause}") from cause
    return value


@dataclass(frozen=True)
class TopicNameMatches(Predicate):
    r"""True of a record whose topic, all of it, matches a regular expression; not of one without a topic.

    The expression is one of Python's `re`, in which \\d, \\w and \\s are ASCII as in Java. What Python does not know of
    Java's (possessive quantifiers before 3.11, \\p{...}, \\Q...\\E, \\h, \\R, flags in the middle, groups named
    (?<name>...)) is refused, and so are classes within classes and &&, which Python would read as something else.
    """

    pattern: str
    compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)
    """What the expression was compiled to."""
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("pattern", rule=every(non_empty_string, _pattern), doc="regular expression for the whole topic")
    )

    def __post_init__(self) -> None:
        self._settle()
        object.__setattr__(self, "compiled", re.compile(self.pattern, re.ASCII))

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the topic matches."""
        return self._matches(record.topic)

    def test_columns(self, rows: HeaderRows) -> Flags:
        """Return which topics match; each is looked at once."""
        matching: Flags = rows.by_topic(self._matches, None, pa.bool_()).to_numpy(zero_copy_only=False)
        return matching

    def _matches(self, topic: str | None) -> bool:
        return topic is not None and self.compiled.fullmatch(topic) is not None


def _java_only(pattern: str) -> str | None:
    """Return what in a pattern Python would read as something else than Java does, None if nothing."""
    position, in_class = 0, False
    while position < len(pattern):
        character = pattern[position]
        if in_class and (character == "[" or pattern.startswith("&&", position)):
            return f"classes can't be nested or intersected here, as they are at {position}"
        if character == "\\":
            position += 1
        elif character == "[":
            in_class = True
            position += pattern.startswith("^", position + 1)
            position += pattern.startswith("]", position + 1)  # the first one is of the class itself
        elif character == "]":
            in_class = False
        position += 1
    return None
