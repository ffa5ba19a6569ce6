"""`NAME[:KIND[:OPTION=MS,...]]`: a store on the command line, and what else is known of it there.

For a store whose files are read, what the files say can be left out. For one of which only the changelog is left, kind
and times must be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType, require_milliseconds
from statestore.stores.stores import Stores
from statestore.stores.supplier import BytesStoreSupplier
from upgrade_tools.states.state import StateOptions

_FORM: Final = "NAME[:KIND[:OPTION=MS,...]]"
_LEAST_MS: Final = {"window_size_ms": 0, "retention_ms": 0, "segment_interval_ms": 1}
"""The times that can be given, and the minimum of each."""
_MAX_DIGITS: Final = 19
"""Of 2^63 - 1, the greatest time."""
_EXAMPLES_MS: Final = {"window_size_ms": 60_000, "retention_ms": 3_600_000}
"""The times that must be given for kinds that have them, with examples."""
_Times: TypeAlias = Mapping[str, int]
_SUPPLIERS: Final[dict[StoreKind, Callable[[str, StoreType, _Times], BytesStoreSupplier]]] = {
    StoreKind.KEY_VALUE: lambda name, _, times: Stores.persistent_key_value_store(name),
    StoreKind.WINDOW: lambda name, store_type, times: Stores.persistent_window_store(
        name,
        times["retention_ms"],
        times["window_size_ms"],
        store_type.retain_duplicates,
        times.get("segment_interval_ms"),
    ),
    StoreKind.SESSION: lambda name, _, times: Stores.persistent_session_store(
        name, times["retention_ms"], times.get("segment_interval_ms")
    ),
    StoreKind.VERSIONED: lambda name, _, times: Stores.persistent_versioned_key_value_store(
        name, times["retention_ms"], times.get("segment_interval_ms")
    ),
}
"""Kafka's factories, which know the segment intervals."""


@dataclass(frozen=True)
class StoreArgument:
    """What one argument says about a store."""

    text: str
    """The argument, for errors."""
    name: str
    kind: StoreType | None
    times_ms: Mapping[str, int]
    """The times that were given, named as in `StateOptions`."""

    @classmethod
    def parse(cls, text: str) -> StoreArgument:
        """Return what `text` says. Raises ValueError if it is malformed, or a time is out of range."""
        name, _, rest = text.partition(":")
        kind, _, times = rest.partition(":")
        if not name:
            raise ValueError(f"{text!r} names no store: write {_FORM}")
        return cls(text, name, _kind(text, kind) if kind else None, _times(text, times))

    @property
    def says_more(self) -> bool:
        """Whether it says more than a name."""
        return self.kind is not None or bool(self.times_ms)

    def options(self, otherwise: StateOptions) -> StateOptions:
        """Return how to read the store; what the argument does not say is as in `otherwise`."""
        given: dict[str, Any] = {**self.times_ms, "kind": self.kind or otherwise.kind}
        return replace(otherwise, **given)

    def spec(self) -> StoreSpec:
        """Return the store that the argument describes; the segment interval is Kafka Streams' unless it is given.

        Raises ValueError, with what is missing or wrong.
        """
        if self.kind is None:
            raise ValueError(f"{self.text!r} does not say the store's kind, {_one_of_the_kinds()}")
        spans = self.kind.store_kind.spans
        needed = [time for time in _EXAMPLES_MS if time in spans]
        missing = [_option(time) for time in needed if time not in self.times_ms]
        unknown = [time for time in self.times_ms if time not in spans]
        if missing:
            example = ",".join(f"{_option(time)}={_EXAMPLES_MS[time]}" for time in needed)
            raise ValueError(
                f"{self.text!r} must say {' and '.join(missing)}, as in {self.name}:{self.kind.value}:{example}"
            )
        if unknown:
            raise ValueError(f"{self.text!r}: a {self.kind.value} has no {_option(unknown[0])}")
        return _SUPPLIERS[self.kind.store_kind](self.name, self.kind, self.times_ms).spec(self.kind.store_format)


def parse_stores(texts: Sequence[str]) -> list[StoreArgument]:
    """Return what each text says. Raises ValueError for a malformed one, or a store that is named twice."""
    arguments = [StoreArgument.parse(text) for text in texts]
    names = [argument.name for argument in arguments]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the store {twice!r} is named twice")
    return arguments


def _kind(text: str, kind: str) -> StoreType:
    try:
        return StoreType(kind)
    except ValueError:
        raise ValueError(f"{text!r} is not {_FORM} with a known kind, {_one_of_the_kinds()}") from None


def _one_of_the_kinds() -> str:
    return f"one of {', '.join(known.value for known in StoreType)}"


def _times(text: str, times: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in filter(None, times.split(",")):
        option, _, value = part.partition("=")
        time = option.replace("-", "_")
        if option != _option(time) or time not in _LEAST_MS or not value.isascii() or not value.isdigit():
            options = ", ".join(map(_option, _LEAST_MS))
            raise ValueError(f"{text!r}: {part!r} is not OPTION=MS with one of the options {options}")
        if time in found:
            raise ValueError(f"{text!r} says {option} more than once")
        # Python refuses to parse numbers of thousands of digits, with another message.
        milliseconds = int(value) if len(value) <= _MAX_DIGITS else 2**63
        require_milliseconds(f"{text!r}: {option}", milliseconds, least=_LEAST_MS[time])
        found[time] = milliseconds
    return found


def _option(time: str) -> str:
    return time.replace("_", "-")
