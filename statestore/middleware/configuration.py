"""Interceptors by name, as Kafka's clients have them: `interceptor.classes`.

statestore.interceptors=statestore.middleware.tracing:Tracing,my.company:Audit
statestore.interceptors.audit.topic=...        whatever these want: each is given all properties
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from statestore.connect.config import ConfigType, parse_type
from statestore.connect.transforms.properties_text import config_of, read_properties
from statestore.errors import ConfigException
from statestore.middleware.chain import Chain
from statestore.middleware.ingest_function import IngestFunction, IngestHook
from statestore.middleware.interceptor import Interceptor

Interceptors: TypeAlias = "Chain | Interceptor | Iterable[Interceptor | Chain] | Mapping[str, Any] | str | None"
"""A chain, what one is made of, or a configuration that names interceptors: a mapping, properties as text, or JSON."""

INTERCEPTORS: Final = "statestore.interceptors"


def chain_of(given: Interceptors) -> Chain:
    """Return the chain that is given, or made of what is given; None is an empty one.

    Raises ConfigException for a configuration that names what is no interceptor, and what Chain raises.
    """
    if isinstance(given, Chain):
        return given
    if given is None:
        return Chain()
    if isinstance(given, str):
        return _configured(read_properties(given))
    if isinstance(given, Mapping):
        return _configured(given)
    return Chain((given,) if isinstance(given, Interceptor) else given)


def query_chain(interceptors: Interceptors, on_ingest: IngestHook | None, config: Mapping[str, Any]) -> Chain:
    """Return the chain of a query: `on_ingest` next to its topology, and what is configured outside of all others.

    Raises what `chain_of` raises, and ChainIncompleteError.
    """
    own = () if on_ingest is None else (IngestFunction(on_ingest),)
    return Chain([*own, *chain_of(interceptors), *chain_of(config)]).complete()


def _configured(given: Mapping[str, Any]) -> Chain:
    properties = config_of(given)
    named = parse_type(INTERCEPTORS, properties.get(INTERCEPTORS), ConfigType.LIST) or ()
    return Chain(_interceptor(name, properties) for name in named)


def _interceptor(name: str, properties: Mapping[str, Any]) -> Interceptor:
    found = parse_type(INTERCEPTORS, name, ConfigType.CLASS)
    if not isinstance(found, type) or not issubclass(found, Interceptor):
        raise ConfigException(f"{name} is no subclass of Interceptor", name=INTERCEPTORS, value=name)
    return found.from_config({key: str(value) for key, value in properties.items()})
