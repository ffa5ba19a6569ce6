"""Steps that give records other topics, and a predicate of topics. Source: Kafka's classes of these names."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect.config import ConfigDef, Property, every, invalid, non_empty_string, non_null
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.transformation import HeaderRows, Predicate, Transformation
from statestore.connect.values.date_text import DateFormat
from statestore.errors import DataException
from statestore.format.binary_columns import Flags

_TOPIC: Final = "${topic}"
_TIMESTAMP: Final = "${timestamp}"
_PLACEHOLDERS: Final = re.compile(r"(\$\{topic\}|\$\{timestamp\})")
_NO_TIMESTAMP: Final = "Timestamp missing on record"
_REPLACED: Final = re.compile(r"\$(?P<group>[0-9]{1,9})|\\(?P<escaped>.)|[^$\\]+|[$\\]", re.DOTALL)


def _pattern(name: str, value: str | None) -> str | None:
    """Check that a text is a regular expression that Python reads as Java does."""
    problem = None if value is None else _java_only(value)
    if value is None or problem is not None:
        raise invalid(name, value, f"Invalid regex: {problem or 'there is none'}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a later Python will read it in another way
            re.compile(value, re.ASCII)
    except (re.error, Warning, RecursionError, OverflowError) as cause:
        raise invalid(name, value, f"Invalid regex: {cause}") from cause
    return value


@dataclass(frozen=True)
class TopicNameMatches(Predicate):
    r"""True of a record whose whole topic matches a regular expression; not of one without a topic.

    The expression is one of Python's `re`, in which \\d, \\w and \\s are ASCII as in Java. What only Java knows
    (possessive quantifiers before 3.11, \\p{...}, \\Q...\\E, \\h, \\R, flags in the middle, groups named
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


@dataclass(frozen=True)
class RegexRouter(Transformation):
    """Gives another topic to a record whose whole topic matches a regular expression, as `TopicNameMatches` reads it.

    The first place that matches is replaced. In the replacement, $1 is the first group, and a backslash takes the next
    character as it is. Raises ConfigException for a group that there is not, where Kafka does for each record.
    """

    regex: str
    replacement: str
    compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)
    parts: tuple[str | int, ...] = field(init=False, repr=False, compare=False)
    """Texts of the replacement, and numbers of groups."""
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("regex", rule=_pattern, doc="regular expression for the whole topic"),
        Property("replacement", rule=non_null, doc="what stands for the place that matches"),
    )
    may_route = True

    def __post_init__(self) -> None:
        self._settle()
        compiled = re.compile(self.regex, re.ASCII)
        object.__setattr__(self, "compiled", compiled)
        object.__setattr__(self, "parts", _replacement(self.replacement, compiled.groups))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the topic that it is to have."""
        return record.new_record(topic=self._routed(record.topic))

    def apply_columns(self, rows: HeaderRows, chosen: Flags | None, converter: HeaderConverter) -> HeaderRows:
        """Put other topics; each is looked at once."""
        return rows.with_topics(rows.by_topic(self._routed, chosen, pa.string()), chosen)

    def _routed(self, topic: str | None) -> str | None:
        if topic is None or self.compiled.fullmatch(topic) is None:
            return topic
        found = self.compiled.search(topic)
        assert found is not None, "what matches as a whole is found"
        made = "".join(part if isinstance(part, str) else found[part] or "" for part in self.parts)
        return topic[: found.start()] + made + topic[found.end() :]


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """Return the texts and the numbers of groups that a replacement of Java's has. Raises ConfigException."""
    parts: list[str | int] = []
    for token in _REPLACED.finditer(text):
        digits = token["group"]
        if digits is None:
            if token[0] in ("$", "\\"):
                what = (
                    "no number of a group follows the dollar sign"
                    if token[0] == "$"
                    else "nothing follows the backslash"
                )
                raise invalid("replacement", text, f"At {token.start()} {what}")
            parts.append(token["escaped"] or token[0])
            continue
        # Of further digits those belong to the number that make it one of a group.
        count = next((count for count in range(len(digits), 1, -1) if int(digits[:count]) <= groups), 1)
        if int(digits[:count]) > groups:
            raise invalid("replacement", text, f"There is no group {digits[:count]}")
        parts += [int(digits[:count]), digits[count:]]
    return tuple(parts)


def date_format(name: str, value: str | None) -> str | None:
    """Check that a text is a pattern of dates; None counts as an empty one."""
    try:
        DateFormat(value or "")
    except ValueError as cause:
        raise invalid(name, value, f"Invalid pattern of dates: {cause}") from None
    return value


@dataclass(frozen=True)
class TimestampRouter(Transformation):
    """Gives each record a topic made of its own and of its timestamp, in UTC. One without a topic stays as it is.

    Raises, when applied, DataException for a record without a timestamp.
    """

    topic_format: str = "${topic}-${timestamp}"
    timestamp_format: str = "yyyyMMdd"
    format: DateFormat = field(init=False, repr=False, compare=False)
    pieces: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The topic's format, cut at the placeholders."""
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("topic.format", default=topic_format, rule=non_null, doc="the topic, with ${topic} and ${timestamp}"),
        Property(
            "timestamp.format",
            default=timestamp_format,
            rule=every(non_null, date_format),
            doc="pattern of SimpleDateFormat",
        ),
    )
    may_route = True

    def __post_init__(self) -> None:
        self._settle()
        object.__setattr__(self, "format", DateFormat(self.timestamp_format))
        object.__setattr__(self, "pieces", tuple(_PLACEHOLDERS.split(self.topic_format)))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the topic that it is to have."""
        if record.timestamp_ms is None:
            raise DataException(_NO_TIMESTAMP)
        if record.topic is None:
            return record
        values = {_TOPIC: record.topic, _TIMESTAMP: self.format.text_of(record.timestamp_ms)}
        return record.new_record(topic="".join(values.get(piece, piece) for piece in self.pieces))

    def apply_columns(self, rows: HeaderRows, chosen: Flags | None, converter: HeaderConverter) -> HeaderRows:
        """Put other topics; each time is written once."""
        times = rows.timestamps_ms
        if (times if chosen is None else times.filter(pa.array(chosen))).null_count:
            raise DataException(_NO_TIMESTAMP)
        unit_ms = self.format.unit_ms
        units, places = np.unique(pc.fill_null(times, 0).to_numpy() // unit_ms, return_inverse=True)
        texts = pa.array([self.format.text_of(unit * unit_ms) for unit in units.tolist()], pa.string())
        topics = rows.topics.cast(pa.string())
        columns = {_TOPIC: topics, _TIMESTAMP: texts.take(pa.array(places))}
        made = pc.binary_join_element_wise(*(columns.get(piece, piece) for piece in self.pieces), "")
        return rows.with_topics(pc.if_else(pc.is_valid(topics), made, None), chosen)


def _java_only(pattern: str) -> str | None:
    """Return what Python and Java would read differently in a pattern, None if nothing."""
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
            position += pattern.startswith("]", position + 1)  # the first one is a member of the class
        elif character == "]":
            in_class = False
        position += 1
    return None
