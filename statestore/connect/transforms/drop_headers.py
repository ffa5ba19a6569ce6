"""DropHeaders: records lose the headers of some names. Source: KIP-145, and Kafka's `DropHeaders`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from statestore.connect.config import ConfigDef, distinct_values
from statestore.connect.converters.base import COMPAT_MODE, MODE, MODE_PROPERTY, STRICT_MODE
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.transformation import Transformation, list_property

_NAMES: Final = list_property("headers", distinct_values, "names of the headers to remove", aliases=("header.names",))
_KAFKAS: Final = ConfigDef(replace(_NAMES, aliases=()), MODE_PROPERTY)


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
