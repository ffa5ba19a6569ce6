"""`NAME:KIND[:OPTION=MS,...]`: what a user says of a store that only its changelog is left of."""

from __future__ import annotations

from typing import Final

from statestore.bytestore.kinds.kind_names import Kind
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.stores.stores import Stores
from statestore.stores.supplier import BytesStoreSupplier

_WINDOW_SIZE: Final = "window-size-ms"
_RETENTION: Final = "retention-ms"
_INTERVAL: Final = "segment-interval-ms"
_NEEDED: Final = {
    StoreKind.KEY_VALUE: (),
    StoreKind.WINDOW: (_WINDOW_SIZE, _RETENTION),
    StoreKind.SESSION: (_RETENTION,),
    StoreKind.VERSIONED: (_RETENTION,),
}


def parse_store(text: str) -> StoreSpec:
    """Return the store that `text` describes; a segment interval that is not said is that of Kafka Streams.

    Raises ValueError, with what is missing or wrong.
    """
    name, _, rest = text.partition(":")
    kind_name, _, said = rest.partition(":")
    try:
        kind = Kind(kind_name)
    except ValueError:
        known = ", ".join(known.value for known in Kind)
        raise ValueError(f"{text!r} is not NAME:KIND[:OPTION=MS,...] with one of the kinds {known}") from None
    needed = _NEEDED[kind.meaning.store_kind]
    options = _options(text, said)
    missing = [option for option in needed if option not in options]
    unknown = [option for option in options if option not in needed and not (needed and option == _INTERVAL)]
    if missing:
        raise ValueError(f"{text!r} must say {' and '.join(missing)}, as in {_example(name, kind)}")
    if unknown:
        raise ValueError(f"{text!r}: a {kind.value} has no {unknown[0]}")
    return _supplier(name, kind, options).spec(kind.meaning.format)


def _options(text: str, said: str) -> dict[str, int]:
    options: dict[str, int] = {}
    for word in filter(None, said.split(",")):
        option, _, value = word.partition("=")
        if not value.isascii() or not value.isdigit() or option in options:
            raise ValueError(f"{text!r}: {word!r} is not OPTION=MS, said once")
        options[option] = int(value)
    return options


def _supplier(name: str, kind: Kind, options: dict[str, int]) -> BytesStoreSupplier:
    """Return what Kafka's factories make of it, which know the segment intervals."""
    interval_ms = options.get(_INTERVAL)
    if kind.meaning.store_kind is StoreKind.WINDOW:
        duplicates = kind.meaning.retain_duplicates
        return Stores.persistent_window_store(name, options[_RETENTION], options[_WINDOW_SIZE], duplicates, interval_ms)
    if kind.meaning.store_kind is StoreKind.SESSION:
        return Stores.persistent_session_store(name, options[_RETENTION], interval_ms)
    if kind.meaning.store_kind is StoreKind.VERSIONED:
        return Stores.persistent_versioned_key_value_store(name, options[_RETENTION], interval_ms)
    return Stores.persistent_key_value_store(name)


def _example(name: str, kind: Kind) -> str:
    examples = {_WINDOW_SIZE: 60_000, _RETENTION: 3_600_000}
    options = ",".join(f"{option}={examples[option]}" for option in _NEEDED[kind.meaning.store_kind])
    return f"{name}:{kind.value}:{options}"
