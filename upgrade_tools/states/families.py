"""What column families tell of a store, and what they do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY
from statestore.bytestore.kinds.families import FAMILIES
from statestore.bytestore.kinds.kind_names import Kind, Meaning
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec


def kinds_by_families(
    kinds: Sequence[StoreKind], families: Collection[str], recorded: StoreSpec | None = None
) -> tuple[Kind, ...]:
    """Return which of `kinds` a store may be that has these families, each in the newest format of which it has one.

    Every database has the default family, so it tells nothing; any other one is never that of a kind that has it not.
    """
    newest: dict[StoreKind, Meaning] = {}
    told = set()
    for kind in kinds:
        for store_format, family in sorted(FAMILIES[kind].items()):
            if family == DEFAULT_FAMILY or family in families:
                newest[kind] = Meaning(kind, store_format)
            if family != DEFAULT_FAMILY and family in families:
                told.add(kind)
    possible = [meaning for kind, meaning in newest.items() if kind in told or not told]
    return tuple(Kind.with_meaning(known) for meaning in possible for known in _with_duplicates(meaning, recorded))


def _with_duplicates(meaning: Meaning, recorded: StoreSpec | None) -> list[Meaning]:
    """Return what a store may be by whether it retains duplicates, which no family tells."""
    if recorded is not None:
        return [meaning._replace(retain_duplicates=recorded.retain_duplicates)]
    retained = meaning._replace(retain_duplicates=True)
    return [meaning, retained] if meaning.store_kind.has_windows else [meaning]
