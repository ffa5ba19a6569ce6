"""Opens a store on the column families that a database has: as it is, as an upgrade, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase
from statestore.bytestore.kinds.families import FAMILIES, older_formats, skips_a_step
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades.upgrading import Convert, UpgradingByteStore
from statestore.errors import StoreFormatError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import upgrade_between

_TAKE_BOTH_STEPS: Final = (
    "KIP-1271 has no upgrade from plain values to headers, for their timestamps are unknown. Give the store its "
    "timestamped builder first, start once, finish the upgrade (`finish_upgrade`, or `upgrade-tools finish-upgrade`), "
    "and then take the builder with headers; or have both steps done at once, by the builder's "
    "`with_upgrade_through_timestamped()` or by `upgrade-tools migrate --to headers --through-timestamped`. Either way "
    "such values have the timestamp -1 until they are written again, unless `upgrade-tools migrate --timestamp-ms MS` "
    "gives them one"
)

FamilyName = Callable[[StoreFormat], str]  # names the column family of a store in a format: a layout's


def open_store(
    database: RocksDBDatabase, spec: StoreSpec, family_name: FamilyName, name: str, *, begins_upgrade: bool = False
) -> ByteStore:
    """Return the byte store of `spec` in a database that has its family, as an upgrade if there is an older format.

    `name` is the store's, or its segment's, in errors. Raises StoreFormatError if it has entries in two older formats,
    and, where the upgrade is one that begins now, if it skips a step that `spec` does not allow to be skipped.
    """
    wanted = family_name(spec.format)
    older, nonempty = _older_families(database, spec, family_name)
    if len(nonempty) > 1:
        raise StoreFormatError(
            name,
            recorded=" and ".join(known.describe() for known in nonempty) + " at the same time",
            asked=spec.format.describe(),
            where=database.path,
            remedy=f"Finish the upgrade to {nonempty[0].describe()} first, with a store of that format, or delete the "
            "local state and restore the store from its changelog",
        )
    for known in older:
        if known not in nonempty and family_name(known) != DEFAULT_FAMILY:
            database.drop_family(family_name(known))
    if not nonempty:
        return database.family(wanted, name)
    if begins_upgrade:
        refuse_skipped_step(nonempty[0], spec, database.path, name)
    convert = conversion(spec.kind, nonempty[0], spec.format)
    return UpgradingByteStore(database, wanted, family_name(nonempty[0]), convert, name)


def finish_older_upgrades(database: RocksDBDatabase, spec: StoreSpec, family_name: FamilyName, name: str) -> None:
    """Have the entries of a store that `open_store` would refuse in one older format: move them through the formats."""
    _, nonempty = _older_families(database, spec, family_name)
    while len(nonempty) > 1:
        oldest, newer = nonempty.pop(), nonempty[-1]
        convert = conversion(spec.kind, oldest, newer)
        UpgradingByteStore(database, family_name(newer), family_name(oldest), convert, name).finish_upgrade()


def _older_families(
    database: RocksDBDatabase, spec: StoreSpec, family_name: FamilyName
) -> tuple[list[StoreFormat], list[StoreFormat]]:
    """Return the older formats that a store has a family of, the newest first, and those of them that have entries."""
    older = [known for known in older_formats(spec.kind, spec.format) if family_name(known) in database.families]
    nonempty = [known for known in older if next(database.family(family_name(known)).range(None, None), None)]
    return older, nonempty


def refuse_downgrade(
    present: Collection[str], spec: StoreSpec, family_name: FamilyName, where: str, name: str, remedy: str | None = None
) -> None:
    """Raise StoreFormatError if one of the families in `present` is that of a newer format than `spec` has."""
    for newer in FAMILIES[spec.kind]:
        if spec.format in older_formats(spec.kind, newer) and family_name(newer) in present:
            raise StoreFormatError(
                name,
                recorded=f"{spec.kind.value} store, {newer.describe()}",
                asked=spec.describe(),
                where=where,
                remedy=remedy or downgrade_remedy(spec),
            )


def is_downgrade(recorded: StoreSpec, asked: StoreSpec) -> bool:
    """Return whether a store is asked for in an older format than it is recorded in."""
    return recorded.kind is asked.kind and asked.format in older_formats(asked.kind, recorded.format)


def downgrade_remedy(spec: StoreSpec) -> str:
    """Return what to do where a store of a directory is asked for as `spec`, in an older format than it has."""
    return (
        "A downgrade in place is not supported, for what the older format has no room for would be lost. Open it in "
        "the recorded format; or rebuild it in a new place, with `upgrade-tools downgrade DIR TARGET --to "
        f"{spec.format.describe()} --store {spec.name}`; or delete the local state and restore the store from its "
        "changelog"
    )


def refuse_skipped_step(recorded: StoreFormat, spec: StoreSpec, where: str, name: str) -> None:
    """Raise StoreFormatError if `spec` would give plain values headers at once, and nobody has said that it may."""
    if skips_a_step(recorded, spec.format) and not spec.through_timestamped:
        raise StoreFormatError(
            name,
            recorded=f"{spec.kind.value} store, {recorded.describe()}",
            asked=spec.describe(),
            where=where,
            remedy=_TAKE_BOTH_STEPS,
        )


def conversion(kind: StoreKind, older: StoreFormat, newer: StoreFormat) -> Convert:
    """Return the function that converts an entry of a store of this kind from one format to a newer one."""
    convert_value = upgrade_between(older, newer)
    assert convert_value is not None  # `older` is one of older_formats()
    return LAYOUTS[kind].conversion(convert_value)
