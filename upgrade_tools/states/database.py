"""The databases of a state as they lie on the disk: column families, with the bytes in them as they are.

For who looks at a state before it is known what its stores are, or does not trust what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind, StoreSpec, StoreType
from statestore.bytestore.protocol import ByteStore
from statestore.format.values.store_format import StoreFormat


@dataclass(frozen=True)
class OpenFamilies:
    """A database that is open: what is written to it is lost."""

    families: Mapping[str, Mapping[str, ByteStore]]
    """Of each store, its column families by Kafka Streams' names."""
    offsets: ByteStore | None = None
    """The family of Kafka Streams that says what the store has taken in."""


@dataclass(frozen=True)
class Database:
    """A database of one part: of one store or segment in Kafka Streams' layout, of all stores in ours."""

    name: str
    """Where it is: a path below the state's, or what else people know it by."""
    open: Callable[[], AbstractContextManager[OpenFamilies]]
    """Opens it through a view. Raises StateDirectoryError, RecoveryError."""
    store: str | None = None
    """Whose it is; None if it has all stores."""
    segment_start_ms: int | None = None
    """When the segment begins that it is; None if it is not one, and its keys begin with their segment's id then."""
    tables: list[Path] = field(default_factory=list)
    """The table files in its directory."""


def kinds_by_families(
    kinds: Sequence[StoreKind], families: Collection[str], recorded: StoreSpec | None = None
) -> tuple[StoreType, ...]:
    """Return which of `kinds` a store may be that has these families, each in the newest format of which it has one.

    Every database has the default family, so it tells nothing; any other one is never that of a kind that has it not.
    """
    newest: dict[StoreKind, StoreFormat] = {}
    told = set()
    for kind in kinds:
        for store_format, family in sorted(FAMILIES[kind].items()):
            if family == DEFAULT_FAMILY or family in families:
                newest[kind] = store_format
            if family != DEFAULT_FAMILY and family in families:
                told.add(kind)
    return tuple(
        StoreType.with_parts(kind, store_format, retained)
        for kind, store_format in newest.items()
        if kind in told or not told
        for retained in _may_retain_duplicates(kind, recorded)
    )


def _may_retain_duplicates(kind: StoreKind, recorded: StoreSpec | None) -> list[bool]:
    """Return whether a store retains duplicates, which no family tells: both if nothing does."""
    if recorded is not None:
        return [recorded.retain_duplicates]
    return [False, True] if kind.has_windows else [False]
