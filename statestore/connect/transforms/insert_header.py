"""InsertHeader: one more header for every record. Source: KIP-145, and Kafka's `InsertHeader`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from statestore.connect.config import ConfigDef, Property, non_null
from statestore.connect.converters.base import COMPAT_MODE, MODE_PROPERTY, STRICT_MODE
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import SchemaAndValue
from statestore.connect.transforms.transformation import Transformation
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.connect.values.values import Values

_VALUES: Final[dict[str, Values]] = {STRICT_MODE: STRICT, COMPAT_MODE: COMPAT}


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
        parsed = _VALUES[self.mode].parse_string(self.value_literal)
        object.__setattr__(self, "literal", SchemaAndValue(None, None) if parsed is None else parsed)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with one more header."""
        return record.new_record(headers=record.headers.duplicate().add(self.header, self.literal))
