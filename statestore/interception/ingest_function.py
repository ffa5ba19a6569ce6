"""A function for records on their way into a shard, or a connector's configuration, as an interceptor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from statestore.errors.readable import shape_of
from statestore.headers.record_columns import RecordColumns
from statestore.headers.records import ConsumerRecord
from statestore.interception.interceptor import IngestedRecord, Interceptor

if TYPE_CHECKING:
    from statestore.connect.converters.base import HeaderConverter
    from statestore.connect.tolerance import Tolerance

IngestHook: TypeAlias = "Callable[[IngestedRecord], IngestedRecord | None]"
"""Returns the record to go on with, the same or another; None if it took care of it. Travels to the executors."""


@runtime_checkable
class ColumnIngest(Protocol):
    """A hook that takes columns too, and has a converter of headers."""

    header_converter: HeaderConverter
    is_in_columns: bool
    """Whether it takes columns."""

    def ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Return what the hook makes of records: the same as of each by itself."""
        ...


class IngestFunction(Interceptor):
    """An interceptor that does to records what a function does, which returns one record or None.

    Raises TypeError if it can't be called.
    """

    def __init__(self, function: IngestHook) -> None:
        if not callable(function):
            raise TypeError(f"on_ingest must be a function of a record, not {function!r}")
        self._function: Final = function
        if isinstance(function, ColumnIngest) and function.is_in_columns:
            self.on_ingest_columns = function.ingest_columns

    @property
    def name(self) -> str:
        """The argument that it was given as."""
        return "on_ingest"

    @property
    def header_converter(self) -> HeaderConverter | None:
        """What processors read typed headers with, None if the function does not say."""
        return getattr(self._function, "header_converter", None)

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Return what the function returns, in a list."""
        made: Any = self._function(record)
        if made is None:
            return ()
        if not isinstance(made, ConsumerRecord):
            raise TypeError(f"it must return a ConsumerRecord or None, not {shape_of(made)}")
        return (made,)


@dataclass(frozen=True)
class _WithConverter:
    """A function of a record, and what processors read typed headers with beside it."""

    function: IngestHook
    header_converter: HeaderConverter

    def __call__(self, record: IngestedRecord) -> IngestedRecord | None:
        return self.function(record)


def with_default_converter(on_ingest: IngestHook | None, converter: HeaderConverter | None) -> IngestHook | None:
    """Return a hook that has this converter of headers where it names none; the hook itself if there is none."""
    if converter is None or not (on_ingest is None or callable(on_ingest)):
        return on_ingest
    from statestore.connect.ingest import ConnectIngest

    if on_ingest is None or isinstance(on_ingest, ConnectIngest):
        return (on_ingest or ConnectIngest()).with_default(converter)
    return _WithConverter(on_ingest, converter)


def tolerance_of(on_ingest: IngestHook | None) -> Tolerance | None:
    """Return what a connector's configuration says about records that fail; None if there is none."""
    return getattr(on_ingest, "tolerance", None)


def header_converter_of(interceptors: Iterable[Interceptor]) -> HeaderConverter | None:
    """Return what processors read typed headers with, None if none of them says."""
    functions = (each for each in interceptors if isinstance(each, IngestFunction))
    return next((each.header_converter for each in functions if each.header_converter is not None), None)
