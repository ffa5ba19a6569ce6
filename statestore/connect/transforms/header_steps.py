"""Steps on headers alone, and predicates of any step. Source: KIP-145, KIP-585, and Kafka's classes of these names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from statestore.connect.config import (
    ConfigDef,
    ConfigType,
    Property,
    distinct_values,
    non_empty_string,
    non_null,
)
from statestore.connect.converters.base import COMPAT_MODE, MODE, MODE_PROPERTY, STRICT_MODE, HeaderConverter
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import SchemaAndValue
from statestore.connect.transforms.transformation import HeaderRows, Predicate, Transformation
from statestore.connect.typed_headers import write_headers
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.connect.values.values import Values
from statestore.format.binary_columns import Flags
from statestore.format.records.header_lists import add_to_lists, remove_from_lists, rows_with_key

_NAMES: Final = Property(
    "headers",
    ConfigType.LIST,
    rule=distinct_values,
    doc="names of the headers to remove",
    aliases=("header.names",),
)
_KAFKAS: Final = ConfigDef(replace(_NAMES, aliases=()), MODE_PROPERTY)
VALUES: Final[dict[str, Values]] = {STRICT_MODE: STRICT, COMPAT_MODE: COMPAT}
"""The conversions of each mode."""
NO_TOPIC: Final = ""
"""The topic that a converter is given for a record without one."""


@dataclass(frozen=True)
class DropHeaders(Transformation):
    """Removes all headers of some names.

    The KIP's own example calls the property `header.names`, which is taken too; in mode "compat" it is not, as Kafka
    does not know it.
    """

    headers: tuple[str, ...]
    mode: str = STRICT_MODE
    config: ClassVar[ConfigDef] = ConfigDef(_NAMES, MODE_PROPERTY)

    def __post_init__(self) -> None:
        self._settle()

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> DropHeaders:
        """Make one of properties, as all transformations are made."""
        return cls(**(_KAFKAS if properties.get(MODE) == COMPAT_MODE else cls.config).parse(properties))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record without the headers."""
        kept = (header for header in record.headers if header.key not in self.headers)
        return record.new_record(headers=ConnectHeaders(kept))

    def apply_columns(self, rows: HeaderRows, chosen: Flags | None, converter: HeaderConverter) -> HeaderRows:
        """Take the headers off the lists."""
        return replace(rows, headers=remove_from_lists(rows.headers, self.headers, chosen))


@dataclass(frozen=True)
class InsertHeader(Transformation):
    """Puts one more header behind the others, of the same value for every record.

    Args:
        header: its name.
        value_literal: its value as text, which is parsed: "1" is a number.
        mode: "strict" leaves what would lose something as it stands, a string; "compat" parses as Kafka does, and makes
            None without a schema of "null".
    """

    header: str
    value_literal: str
    mode: str = STRICT_MODE
    literal: SchemaAndValue = field(init=False, repr=False, compare=False)
    """What the value is."""
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("header", rule=non_null, doc="name of the header"),
        Property("value.literal", rule=non_null, doc="its value, as text"),
        MODE_PROPERTY,
    )

    def __post_init__(self) -> None:
        self._settle()
        parsed = VALUES[self.mode].parse_string(self.value_literal)
        object.__setattr__(self, "literal", SchemaAndValue(None, None) if parsed is None else parsed)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with one more header."""
        return record.new_record(headers=record.headers.duplicate().add(self.header, self.literal))

    def apply_columns(self, rows: HeaderRows, chosen: Flags | None, converter: HeaderConverter) -> HeaderRows:
        """Add the header to the lists, with the bytes that the converter writes for each topic."""
        header = ConnectHeaders().add(self.header, self.literal)

        def written(topic: str | None) -> bytes | None:
            (only,) = write_headers(header, converter, topic=topic or NO_TOPIC)
            return only.value

        values = rows.by_origin(written, chosen, pa.binary())
        return replace(rows, headers=add_to_lists(rows.headers, self.header, values, chosen))


@dataclass(frozen=True)
class Filter(Transformation):
    """Drops every record that it is applied to: in a chain its predicate says which."""

    def apply(self, record: ConnectRecord) -> None:
        """Return None."""

    def apply_columns(self, rows: HeaderRows, chosen: Flags | None, converter: HeaderConverter) -> HeaderRows:
        """Leave the rows out."""
        return rows.only(np.zeros(len(rows.headers), np.bool_) if chosen is None else ~chosen)


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
