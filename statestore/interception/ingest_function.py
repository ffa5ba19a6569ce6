"""A function of a record on its way in, such as a connector's configuration, as an interceptor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from statestore.errors.readable import shape_of
from statestore.headers.records import ConsumerRecord
from statestore.interception.interceptor import IngestedRecord, Interceptor

if TYPE_CHECKING:
    from statestore.connect.converters.base import HeaderConverter
    from statestore.connect.ingest import Tolerance

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]")

IngestHook: TypeAlias = "Callable[[IngestedRecord], IngestedRecord | None]"
"""Returns the record to go on with, the same or another; None leaves it out. Travels to the executors."""


class IngestFunction(Interceptor):
    """An interceptor that does to records on their way in what a function does, which returns one record or None."""

    def __init__(self, function: IngestHook) -> None:
        self._function: Final = function
        self.header_converter: Final[HeaderConverter | None] = getattr(function, "header_converter", None)
        """What processors read typed headers with; None if the function does not say."""
        self.tolerance: Final[Tolerance | None] = getattr(function, "tolerance", None)
        """What a connector's configuration says about records that fail; None if the function is not one."""
        columns = getattr(function, "ingest_columns", None)
        if columns is not None and getattr(function, "is_in_columns", False):
            self.on_ingest_columns = columns  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The function's name, or that of its class, as far as a node's name may have it: "lambda" for a lambda."""
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return _ILLEGAL.sub("", name) or "function"

    def with_default(self, converter: HeaderConverter) -> IngestFunction:
        """Return this with a converter of headers for where a connector's configuration names none."""
        make = getattr(self._function, "with_default", None)
        return self if make is None else IngestFunction(make(converter))

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Return what the function returns, in a list."""
        made: Any = self._function(record)
        if made is None:
            return ()
        if not isinstance(made, ConsumerRecord):
            raise TypeError(f"it must return a ConsumerRecord or None, not {shape_of(made)}")
        return (made,)


class DefaultConverter(Interceptor):
    """Has processors read typed headers with a converter, where no function of the chain says with which."""

    def __init__(self, converter: HeaderConverter) -> None:
        self.header_converter: Final = converter


def with_default_converter(chain: Iterable[Interceptor], converter: HeaderConverter) -> list[Interceptor]:
    """Return interceptors that read headers with this converter where none of them names one."""
    made = [each.with_default(converter) if isinstance(each, IngestFunction) else each for each in chain]
    return made if header_converter_of(made) is not None else [*made, DefaultConverter(converter)]


def header_converter_of(chain: Iterable[Interceptor]) -> HeaderConverter | None:
    """Return what processors read typed headers with; None if no interceptor says."""
    said = (each.header_converter for each in chain if isinstance(each, IngestFunction | DefaultConverter))
    return next((converter for converter in said if converter is not None), None)


def tolerance_of(chain: Iterable[Interceptor]) -> Tolerance | None:
    """Return what the first connector's configuration says about records that fail; None if there is none."""
    said = (each.tolerance for each in chain if isinstance(each, IngestFunction))
    return next((tolerance for tolerance in said if tolerance is not None), None)
