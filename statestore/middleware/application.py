"""What interceptors that are applications have in common: how a configuration makes one, and what time it is for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from statestore.connect.config import ConfigDef, ConfigType, Properties, Property
from statestore.errors import ConfigException
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
        """Make one of the properties `statestore.KIND.*`, its kind's: its arguments, with dots for underscores.

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
        return cls(**arguments)

    def init(self, context: InterceptorContext) -> None:
        """Take the clock."""
        self._context = context

    def _now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch, as the context has it; without, that of the machine.

        A context's stands still for a micro-batch, and is the same when that is retried.
        """
        return time.time_ns() // 1_000_000 if self._context is None else self._context.current_system_time_ms


def optional(type: ConfigType, *names: str) -> Iterator[Property]:
    """Yield properties of one type that need not be given."""
    return (Property(name, type, None) for name in names)
