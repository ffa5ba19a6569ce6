"""Chain: interceptors in an order, as one.

Records that are emitted pass them in their order, records that are ingested in the reverse order: so the last one is
the outermost, and removes on the way in what it added on the way out.

Interceptors have names in configurations, as in Kafka's clients, `interceptor.classes`; each is given all properties:

    statestore.interceptors=statestore.middleware.lineage.tracing:Tracing,my.company:Audit
    statestore.interceptors.audit.topic=...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from statestore.connect.config import ConfigType, parse_type
from statestore.connect.properties_text import config_of, read_properties
from statestore.errors import ConfigException, ProcessorError
from statestore.errors.middleware import ChainIncompleteError, ChainOrderError
from statestore.interception.failures import raise_refusal
from statestore.interception.interceptor import (
    EmittedRecord,
    IngestedRecord,
    IngestFunction,
    IngestHook,
    Interceptor,
    with_default_converter,
)
from statestore.interception.passage import EmitPassage, IngestPassage, Passage, PassedRecord

if TYPE_CHECKING:
    from statestore.connect.converters.base import HeaderConverter

ChainPart: TypeAlias = "Interceptor | Chain | IngestHook"
"""What chains are made of; a function is called with each record that comes in."""

Interceptors: TypeAlias = "ChainPart | Iterable[ChainPart] | Mapping[str, Any] | str | None"
"""A chain, what one is made of, or a configuration that names interceptors: a mapping, properties as text, or JSON."""

INTERCEPTORS: Final = "statestore.interceptors"

_ANY: Final = "*"


class Chain:
    """Interceptors in the order in which emitted records pass them; they need not know each other.

    Iterating a chain yields them. A chain given among interceptors stands for those in it.
    """

    def __init__(self, interceptors: Iterable[ChainPart] = ()) -> None:
        """Raise ChainOrderError for an order in which they can't work, TypeError for what is not a ChainPart.

        Raise ValueError if two have the same name: their stores and figures could not be told apart.
        """
        self.interceptors: Final[tuple[Interceptor, ...]] = tuple(_flattened(interceptors))
        for name, count in Counter(interceptor.name for interceptor in self.interceptors).items():
            if count > 1:
                raise ValueError(f"two interceptors of the chain are called {name!r}: give one of them another name")
        for place, second in enumerate(self.interceptors):
            for first in self.interceptors[:place]:
                reason = second.why_not_after(first) or first.why_not_before(second) or _late_header(first, second)
                if reason:
                    raise ChainOrderError(first=first.name, second=second.name, reason=reason)

    def __iter__(self) -> Iterator[Interceptor]:
        return iter(self.interceptors)

    def __len__(self) -> int:
        return len(self.interceptors)

    def ingest(self, record: IngestedRecord) -> list[IngestedRecord]:
        """Return what the interceptors make of a record that comes in, the last one first.

        For tests and tools: `init` is not called here. Raises what the interceptors raise.
        """
        return _pass(IngestPassage(self.interceptors, raise_refusal), record)

    def emit(self, record: EmittedRecord) -> list[EmittedRecord]:
        """Return what the interceptors make of a record that goes out, the first one first. As `ingest`."""
        return _pass(EmitPassage(self.interceptors, raise_refusal), record)

    def complete(self) -> Chain:
        """Return the chain, if it can run as it is. Raises ChainIncompleteError if an interceptor needs one more."""
        for place, interceptor in enumerate(self.interceptors):
            behind = {other.kind for other in self.interceptors[place + 1 :]}
            for kind, reason in interceptor.needs.items():
                if kind not in behind:
                    raise ChainIncompleteError(interceptor=interceptor.name, missing=kind, reason=reason)
        return self

    def describe(self) -> str:
        """Return the names of the interceptors, in the order in which records are emitted."""
        return " -> ".join(interceptor.name for interceptor in self.interceptors)

    def __repr__(self) -> str:
        return f"Chain({list(self.interceptors)!r})"


def chain_of(given: Interceptors) -> Chain:
    """Return the chain that is given, or made of what is given; None is an empty one.

    Raises ConfigException for a configuration that names what is not an interceptor, and what Chain raises.
    """
    if isinstance(given, Chain):
        return given
    if given is None:
        return Chain()
    if isinstance(given, str | Mapping):
        return _configured(read_properties(given) if isinstance(given, str) else given)
    return Chain((given,) if isinstance(given, Interceptor) or callable(given) else given)


def query_chain(
    interceptors: Interceptors, config: Mapping[str, Any], converter: HeaderConverter | None = None
) -> Chain:
    """Return the chain of a query: what is configured comes outside of all others.

    `converter` is what headers are read with where the chain does not say it. Raises what `chain_of` raises, and
    ChainIncompleteError.
    """
    chain = Chain([chain_of(interceptors), chain_of(config)])
    return (chain if converter is None else Chain(with_default_converter(chain, converter))).complete()


def _pass(passage: Passage[PassedRecord], record: PassedRecord) -> list[PassedRecord]:
    try:
        return passage.pass_record(record)
    except ProcessorError as error:
        raise error.__cause__ or error from None


def _flattened(interceptors: Iterable[ChainPart]) -> Iterator[Interceptor]:
    for interceptor in interceptors:
        if isinstance(interceptor, Chain):
            yield from interceptor
        elif isinstance(interceptor, Interceptor):
            yield interceptor
        elif callable(interceptor) and not isinstance(interceptor, type):
            yield IngestFunction(interceptor)
        else:
            raise TypeError(
                f"a chain is made of interceptors (objects, not their classes) and functions, not of {interceptor!r}"
            )


def _late_header(first: Interceptor, second: Interceptor) -> str | None:
    """Return why `second` is passed too early by what is ingested, if `first` may bring in what `second` goes by."""
    for name in second.goes_by:
        if any(_covers(name, brought) or _covers(brought, name) for brought in first.brings_in):
            headers = "headers" if name == _ANY else f"header {name!r}"
            return (
                f"it goes by {headers} of what is ingested, which {first.name!r} would only then bring in from outside"
            )
    return None


def _covers(pattern: str, name: str) -> bool:
    """Return whether a pattern means a header of this name, or of all that begin so: "*" may be at the end of both."""
    is_of_many = pattern.endswith(_ANY)
    return pattern == name or (is_of_many and name.removesuffix(_ANY).startswith(pattern.removesuffix(_ANY)))


def _configured(given: Mapping[str, Any]) -> Chain:
    properties = config_of(given)
    made = []
    for name in parse_type(INTERCEPTORS, properties.get(INTERCEPTORS), ConfigType.LIST) or ():
        found = parse_type(INTERCEPTORS, name, ConfigType.CLASS)
        if not isinstance(found, type) or not issubclass(found, Interceptor):
            raise ConfigException(f"{name} is not a subclass of Interceptor", name=INTERCEPTORS, value=name)
        made.append(found.from_config({key: str(value) for key, value in properties.items()}))
    return Chain(made)
