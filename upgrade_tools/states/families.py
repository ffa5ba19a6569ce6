"""What column families tell of a store, and what they do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.bytestore.kinds.families import FAMILIES
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.store_types import StoreType
from statestore.format.values.store_format import StoreFormat


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
