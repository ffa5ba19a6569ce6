"""What applications of middleware share: configuration, clock, headers, and libraries that are extras."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect.config import REQUIRED, ConfigDef, ConfigType, Properties, Property
from statestore.errors import ConfigException
from statestore.errors.middleware import ExtraMissingError
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.interception.interceptor import Interceptor, InterceptorContext

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on

TRACEPARENT: Final = "traceparent"
"""The trace that a record belongs to, and the span that it comes from. Source: W3C Trace Context."""
TRACESTATE: Final = "tracestate"
"""What tracing systems add to that."""
BAGGAGE: Final = "baggage"
"""Names and values that travel with a trace. Source: W3C Baggage."""
TRACE_LINKS: Final = "trace-links"
"""Other traces that a record comes from. Leaves with the span that is made when the record is emitted."""
TRAIL_HEADER: Final = "paper-trail"
"""The header that the routing trail is in."""

CHANGING_HEADERS: Final = (TRACEPARENT, TRACESTATE, BAGGAGE, TRACE_LINKS, TRAIL_HEADER)
"""The headers that change on a record's way: each hop continues the trace and lengthens the routing trail.

Mirrors and agents change them too, and have no keys. So a signature leaves them out unless it is told otherwise, and
nothing may be decided by them.
"""


class Application(Interceptor):
    """An interceptor that can be made of properties, which are named after its kind, and that knows the time."""

    _options: ClassVar[ConfigDef]
    """Properties that are not set and have no default are not passed on."""
    _context: InterceptorContext | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Self:
        """Make one of the properties of its kind, as `statestore.signing.*`: the arguments, with dots for underscores.

        A function is given as module:function; an object, too, by a function that returns it. Raises ConfigException
        for a property that is missing, or has an illegal value.
        """
        given = Properties(config).below(f"statestore.{cls.kind}.")
        values = cls._options.parse(given).items()
        try:
            return cls._configured(**{name.replace(".", "_"): value for name, value in values if value is not None})
        except ValueError as cause:
            raise ConfigException(f"{given.prefix}*: {cause}") from cause

    @classmethod
    def _configured(cls, *_: Any, **arguments: Any) -> Self:
        """Make one of its properties. Overridden where a property is not what the argument is."""
        return cls(**arguments)

    def init(self, context: InterceptorContext) -> None:
        """Take the clock."""
        self._context = context

    def _now_ms(self) -> int:
        """Return the wall clock of the context, the same when a batch is retried; without a context the machine's."""
        return time.time_ns() // 1_000_000 if self._context is None else self._context.current_system_time_ms


def options(**names_by_type: str) -> ConfigDef:
    """Return properties by type; a text has the names of several, and a "!" behind each that must be set."""
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
    """Return the records, with one more header where `mask` is true: `values` are one for each row, or one for all."""
    if pc.all(mask).as_py():
        return records.with_header(key, values)
    if not pc.any(mask).as_py():
        return records
    marked = records.with_header(key, values)
    return records.with_columns(headers=pc.if_else(mask, marked.headers, records.headers))


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Have a failed import within the `with` raise ExtraMissingError, which names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ExtraMissingError(module=(missing.name or name).partition(".")[0], extra=name) from missing
