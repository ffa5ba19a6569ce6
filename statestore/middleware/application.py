"""What interceptors that are applications have in common: their configuration, their clock, and marks in headers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect.config import REQUIRED, ConfigDef, ConfigType, Properties, Property
from statestore.errors import ConfigException
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import Interceptor, InterceptorContext

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on


class Application(Interceptor):
    """An interceptor that properties named after its kind make, and that knows the time."""

    _options: ClassVar[ConfigDef]
    """Those whose default is None are not passed on, unless they are there."""
    _context: InterceptorContext | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Self:
        """Make one of the properties of its kind, as `statestore.signing.*`: the arguments, with dots for underscores.

        What is an object or a function is given as module:function, which returns the object, or is it. Raises
        ConfigException for a property that is missing, or has a value that it can't have.
        """
        given = Properties(config).below(f"statestore.{cls.kind}.")
        values = cls._options.parse(given).items()
        try:
            return cls._configured(**{name.replace(".", "_"): value for name, value in values if value is not None})
        except ValueError as cause:
            raise ConfigException(f"{given.prefix}*: {cause}") from cause

    @classmethod
    def _configured(cls, *_: Any, **arguments: Any) -> Self:
        """Make one of its properties; overridden where an argument is not what its property is, to name that one."""
        return cls(**arguments)

    def init(self, context: InterceptorContext) -> None:
        """Take the clock."""
        self._context = context

    def _now_ms(self) -> int:
        """Return the wall clock of the context, which is the same when a batch is retried; without, the machine's."""
        return time.time_ns() // 1_000_000 if self._context is None else self._context.current_system_time_ms


def options(**names_by_type: str) -> ConfigDef:
    """Return properties, whose names are given by their types. Those with a "!" have to be set, others need not be."""
    made = []
    for type_, names in names_by_type.items():
        for name in names.split():
            made.append(Property(name.rstrip("!"), ConfigType[type_], REQUIRED if name.endswith("!") else None))
    return ConfigDef(*made)


def value_of(headers: Headers, key: str) -> bytes | None:
    """Return the value of the last header of a key; None if there is none, or it has no value."""
    header = headers.last_header(key)
    return None if header is None else header.value


def has_none(records: RecordColumns, key: str) -> bool:
    """Return whether none of the records has a header of this key, with a value."""
    values = records.header(key)
    return bool(values.null_count == len(values))


def with_header_where(records: RecordColumns, mask: pa.BooleanArray, key: str, values: Any) -> RecordColumns:
    """Return the records, those where `mask` is true with one more header: `values` has one for each row, or is one."""
    if pc.all(mask).as_py():
        return records.with_header(key, values)
    if not pc.any(mask).as_py():
        return records
    marked = records.with_header(key, values)
    return records.with_columns(headers=pc.if_else(mask, marked.headers, records.headers))
