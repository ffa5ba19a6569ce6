"""Migration as a whole: planned, and then done or tried without writing."""

from __future__ import annotations

from dataclasses import replace

from statestore.bytestore.kafka_streams.directory_view import accessible
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.dry_run import dry_run
from upgrade_tools.migration.places import finish_renames, refuse_overlap
from upgrade_tools.migration.planning.plan import plan_migration
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
from upgrade_tools.migration.report import MigrationReport, OnProgress
from upgrade_tools.migration.to_location import migrate_to_location
from upgrade_tools.migration.to_task_directories import migrate_to_task_directories
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import Layout, StateOptions


def migrate(request: MigrationRequest, on_progress: OnProgress | None = None) -> MigrationReport:
    """Migrate a state as `request` says, or only find out what that would do; return what was done.

    The source is not changed; in place, it is replaced only once the new directory was read back, compared with it
    entry by entry and synced to disk. If the process is killed, the same request continues. Raises
    MigrationRefusedError for what is not possible, TargetNotEmptyError, NoRoomError, MigrationCheckError,
    StateCheckError, and what reading the source raises: StateDirectoryError, StoreError, RecoveryError, FormatError.
    """
    with accessible(request.source):
        if request.target is None and not request.dry_run:
            finish_renames(request.source)
        plan = plan_migration(request)
        refuse_overlap(plan)
        if request.dry_run:
            return dry_run(plan, on_progress)
        if plan.layout is TargetLayout.KAFKA_STREAMS:
            return migrate_to_task_directories(plan, on_progress)
        return migrate_to_location(plan, on_progress)


def downgrade(request: MigrationRequest, on_progress: OnProgress | None = None) -> MigrationReport:
    """Rebuild stores in an older format, in a new directory or location, as their changelog records would.

    What the older format has no room for is lost there: headers, and of plain stores timestamps. Kafka Streams refuses
    to open a store in an older format for that reason, and has it rebuilt from its changelog. Never done in place, so
    the source stays as it is. Raises MigrationRefusedError, and what `migrate` raises.
    """
    if request.target is None or request.to in (None, TargetFormat.HEADERS):
        raise MigrationRefusedError(
            request.source,
            problem="can't be downgraded in place, or to headers",
            remedy="name a TARGET, which is an empty directory or location, and --to timestamped or plain",
        )
    return migrate(replace(request, downgrade=True), on_progress)


def finish_upgrade(request: MigrationRequest, on_progress: OnProgress | None = None) -> MigrationReport:
    """Convert in place what a lazy upgrade has left in families of older formats of Kafka Streams' directories.

    Raises MigrationRefusedError for other layouts, and what `migrate` raises.
    """
    with accessible(request.source):
        if not request.dry_run:
            finish_renames(request.source)
        state = open_state(request.source, StateOptions(subtopology=request.subtopology))
    if state.layout is Layout.LOCATION:
        raise MigrationRefusedError(
            state.path,
            problem="is a state location, whose files are never changed: a query converts older entries as it restores "
            "a shard, and its next snapshot has only the new format",
            remedy="to be rid of all older files, run `migrate LOCATION NEW_LOCATION` while the query is stopped",
        )
    if state.layout is Layout.LOCAL_COPY:
        raise MigrationRefusedError(
            state.path,
            problem="is a local copy, which the query that it belongs to upgrades as it reads, and may be deleted",
            remedy="leave it to the query, or delete it while the query is stopped",
        )
    return migrate(replace(request, target=None, to=None, layout=TargetLayout.KAFKA_STREAMS), on_progress)
