"""The databases of a state as they lie on the disk: column families, with the bytes in them as they are.

For commands that run before the kinds of stores are known, or that do not trust the files.
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
    indexes: Mapping[str, ByteStore] = field(default_factory=dict)
    """The column families with indexes of headers."""
    offsets: ByteStore | None = None
    """Kafka Streams' column family with the store's changelog offset and position."""


@dataclass(frozen=True)
class Database:
    """A database of one part: of one store or segment in Kafka Streams' layout, of all stores in ours."""

    name: str
    """Where it is, for people: a path below the state's, or a shard."""
    open: Callable[[], AbstractContextManager[OpenFamilies]]
    """Opens it through a view. Raises StateDirectoryError, RecoveryError."""
    store: str | None = None
    """The store that it belongs to; None if it has all stores."""
    segment_start_ms: int | None = None
    """Start of the segment that it is; None if it is not one: then its keys begin with their segment's id."""
    tables: list[Path] = field(default_factory=list)
    """The table files in its directory."""


def kinds_by_families(
    kinds: Sequence[StoreKind], families: Collection[str], recorded: StoreSpec | None = None
) -> tuple[StoreType, ...]:
    """Return the kinds, out of `kinds`, that a store with these families may be, each in its newest format.

    Every database has the default family, so it says nothing; any other family rules out the kinds without it.
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
    """Return whether a store may retain duplicates, which its families do not say: both values if nothing says it."""
    if recorded is not None:
        return [recorded.retain_duplicates]
    return [False, True] if kind.has_windows else [False]
