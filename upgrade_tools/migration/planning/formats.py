"""Which format each store gets, and which migrations are refused: formats go one way, and step by step.

    plain -> timestamped -> timestamped with headers      key-value stores and windows
    plain -> with headers                                 sessions, and versions outside of Kafka Streams' layout

KIP-1271 has no step from plain to headers; Kafka Streams takes it with the timestamp -1, here only if options say so.
"""

from __future__ import annotations

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreType, older_formats, skips_a_step
from statestore.format.values.store_format import StoreFormat
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout


def target_kind(
    store: str, kind: StoreType, request: MigrationRequest, layout: TargetLayout, *, named: bool
) -> StoreType:
    """Return what a store of `kind` becomes.

    A store without the wanted format keeps its own, unless it was `named`. Raises MigrationRefusedError for that, for
    downgrades that were not asked for, and for the step from plain to headers.
    """
    wanted = _wanted(store, kind, request, layout, named=named)
    present = kind.store_format
    if wanted is present and not (request.downgrade and named):
        _refuse_unknown_to_kafka_streams(store, kind, request, layout)
        return kind
    if request.downgrade:
        return _downgraded(store, kind, wanted, request)
    if present not in older_formats(kind.store_kind, wanted):
        raise MigrationRefusedError(
            request.source,
            problem=f"has store {store!r} as {kind.value}, which can't be migrated back to {wanted.describe()}",
            remedy="values would lose data. If that is what you want, rebuild it with the command downgrade",
        )
    if skips_a_step(present, wanted) and not request.through_timestamped:
        where = request.source if request.target is None else f"{request.source} {request.target}"
        again = request.source if request.target is None else request.target
        raise MigrationRefusedError(
            request.source,
            problem=f"has store {store!r} as plain, and values get headers by way of the timestamped format",
            remedy=f"run `migrate {where} --to timestamped`, and then `migrate {again} --to headers`; or take both "
            "steps at once with --through-timestamped. Their timestamps will be unknown (-1), or those of "
            "--timestamp-ms",
        )
    migrated = kind.in_format(wanted)
    assert migrated is not None  # it is one of the formats of its kind
    return migrated


def _downgraded(store: str, kind: StoreType, wanted: StoreFormat, request: MigrationRequest) -> StoreType:
    if wanted not in older_formats(kind.store_kind, kind.store_format):
        raise MigrationRefusedError(
            request.source,
            problem=f"has store {store!r} as {kind.value}, for which {wanted.describe()} is not an older format",
            remedy="name the stores to downgrade with --store, or use the command migrate",
        )
    older = kind.in_format(wanted)
    assert older is not None  # it is one of the formats of its kind
    return older


def _wanted(
    store: str, kind: StoreType, request: MigrationRequest, layout: TargetLayout, *, named: bool
) -> StoreFormat:
    store_kind, present = kind.store_kind, kind.store_format
    if request.to is None:
        return present
    by_name = {
        TargetFormat.PLAIN: StoreFormat.PLAIN,
        TargetFormat.TIMESTAMPED: StoreFormat.TIMESTAMPED,
        TargetFormat.HEADERS: max(FAMILIES[store_kind]),
    }
    wanted = by_name[request.to]
    if wanted not in FAMILIES[store_kind]:
        problem = f"has store {store!r} as {kind.value}, which has no timestamped format"
        remedy = "leave it out, or migrate it --to headers"
    elif layout is TargetLayout.KAFKA_STREAMS and LAYOUTS[store_kind].keeps_versions and wanted > present:
        problem = f"has store {store!r} as {kind.value}, and no Kafka Streams has a versioned store with headers"
        remedy = "leave it out, or migrate it to a state location with --layout location"
    else:
        return wanted
    if named:
        raise MigrationRefusedError(request.source, problem=problem, remedy=remedy)
    return present


def _refuse_unknown_to_kafka_streams(
    store: str, kind: StoreType, request: MigrationRequest, layout: TargetLayout
) -> None:
    if layout is TargetLayout.KAFKA_STREAMS and kind is StoreType.HEADERS_VERSIONED:
        raise MigrationRefusedError(
            request.source,
            problem=f"has store {store!r} as {kind.value}, and no Kafka Streams has a versioned store with headers",
            remedy="name the other stores with --store",
        )
