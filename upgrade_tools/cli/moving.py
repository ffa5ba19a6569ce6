"""Commands that move state to another format or layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from statestore.format.json_fields import MALFORMED, whole_number
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.recovery.metadata.state_metadata import ShardBy
from upgrade_tools.cli import options as o
from upgrade_tools.cli.option_groups import OptionGroup, add_command
from upgrade_tools.cli.printing.documents import migration_document
from upgrade_tools.cli.printing.output import errors, print_json, printable, progress_bar, results, say
from upgrade_tools.migration.migrate import downgrade, finish_upgrade, migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
from upgrade_tools.migration.report import MigrationReport, OnProgress
from upgrade_tools.states.state import StateOptions
from upgrade_tools.states.store_argument import parse_stores

_GROUP = "Move"
_TARGET = "What to make"

Source = Annotated[
    str, typer.Argument(help="A directory, or the path or URI of a state location.", callback=o.not_empty)
]
Target = Annotated[
    str | None,
    typer.Argument(
        help="An empty or new directory or location (default: in place, with a backup).", callback=o.not_empty
    ),
]
ToOption = Annotated[
    TargetFormat | None,
    typer.Option("--to", help="The format that stores get (default: the one they have).", rich_help_panel=_TARGET),
]
LayoutOption = Annotated[
    TargetLayout | None,
    typer.Option("--layout", help="Layout of the target (default: that of the source).", rich_help_panel=_TARGET),
]
ThroughTimestampedOption = Annotated[
    bool,
    typer.Option("--through-timestamped", help="Upgrade plain data to headers in one run.", rich_help_panel=_TARGET),
]
TimestampOption = Annotated[
    int | None,
    typer.Option(
        "--timestamp-ms",
        min=0,
        max=MAX_TIME_MS,
        help="The timestamp of entries that have none (default: -1, as in Kafka Streams; its producer refuses to "
        "write such values back).",
        rich_help_panel=_TARGET,
    ),
]
ShardByOption = Annotated[
    ShardBy,
    typer.Option(
        "--shard-by",
        help="How the query will place records on the shards of a location; key is checked for each entry.",
        rich_help_panel=_TARGET,
    ),
]
ShardsOption = Annotated[
    int | None,
    typer.Option(
        "--shards",
        min=1,
        help="How many partitions the application has, if some are not here.",
        rich_help_panel=_TARGET,
    ),
]
MissingOption = Annotated[
    bool,
    typer.Option("--missing-are-empty", help="Partitions that are not here have no state.", rich_help_panel=_TARGET),
]
OffsetsOption = Annotated[
    Path | None,
    typer.Option(
        "--changelog-offsets",
        metavar="FILE",
        help='Offsets of the last records in the source, if it does not record them: {"TOPIC": {"PARTITION": OFFSET}}.',
        rich_help_panel=_TARGET,
    ),
]
StoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="NAME[:KIND[:OPTION=MS,...]]",
        help="A store to migrate (default: all), once for each. If there are several, add what its files do not say: "
        "totals:ts-kv, or visits:window:window-size-ms=60000,retention-ms=3600000.",
        rich_help_panel="What to read",
    ),
]
DiscardOption = Annotated[
    bool,
    typer.Option(
        "--discard-backup",
        help="In place: remove the backup once the new directory is verified and in its place.",
        rich_help_panel=_TARGET,
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Read, convert and place everything, and write nothing.")]


@dataclass(frozen=True)
class StoresGroup(OptionGroup):
    """Which stores are meant, and what the files do not say about them."""

    store: StoresOption = None
    kind: o.KindOption = None
    window_size_ms: o.WindowSizeOption = None

    def read_stores(self, spans: o.SpanGroup) -> tuple[list[str], dict[str | None, StateOptions]]:
        """Return the stores' names and options: of single stores by name, and of all others under None."""
        otherwise = StateOptions(None, self.kind, self.window_size_ms, **spans.chosen())
        try:
            arguments = parse_stores(self.store or ())
        except ValueError as cause:
            raise typer.BadParameter(str(cause), param_hint="--store") from cause
        options: dict[str | None, StateOptions] = {None: otherwise}
        options.update((argument.name, argument.options(otherwise)) for argument in arguments if argument.says_more)
        return [argument.name for argument in arguments], options


@dataclass(frozen=True)
class SourceGroup(o.CommittedGroup, o.TaskGroup, o.SpanGroup, StoresGroup):
    """Which stores of a source are meant, what its files do not say, and what is committed."""

    work_dir: o.WorkDirOption = None

    def request(self, source: str, target: str | None, **wanted: Any) -> MigrationRequest:
        """Return the migration of a source; `wanted` are further fields of MigrationRequest."""
        names, options = self.read_stores(o.SpanGroup(self.retention_ms, self.segment_interval_ms))
        return MigrationRequest(
            source,
            target,
            stores=names,
            store_options=options,
            subtopology=self.subtopology,
            application_id=self.application_id,
            pointers=self.read(source),
            work_dir=self.work_dir,
            **wanted,
        )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "migrate", _GROUP, migrate_)
    add_command(app, "finish-upgrade", _GROUP, finish_upgrade_)
    add_command(app, "downgrade", _GROUP, downgrade_)


def migrate_(
    source: Source,
    *,
    target: Target = None,
    to: ToOption = None,
    layout: LayoutOption = None,
    through_timestamped: ThroughTimestampedOption = False,
    timestamp_ms: TimestampOption = None,
    shard_by: ShardByOption = ShardBy.KEY,
    shards: ShardsOption = None,
    missing_are_empty: MissingOption = False,
    changelog_offsets: OffsetsOption = None,
    expiry_header: o.ExpiryHeaderOption = None,
    discard_backup: DiscardOption = False,
    dry_run: DryRunOption = False,
    of_source: SourceGroup,
    as_json: o.JsonOption = False,
) -> None:
    """Convert state to a newer format or another layout, and verify it entry by entry.

    The source is not changed before the target is verified. If it is killed, the same command continues. Begin with
    --dry-run.
    """
    request = of_source.request(
        source,
        target,
        to=to,
        layout=layout,
        through_timestamped=through_timestamped,
        timestamp_ms=timestamp_ms,
        shard_by=shard_by.value,
        shards=shards,
        missing_are_empty=missing_are_empty,
        changelog_offsets=_offsets(changelog_offsets),
        expiry_headers=o.expiry_headers(expiry_header),
        discard_backup=discard_backup,
        dry_run=dry_run,
    )
    _run(request, migrate, as_json=as_json)


def downgrade_(
    source: Source,
    target: Annotated[str, typer.Argument(help="An empty or new directory or location.", callback=o.not_empty)],
    to: Annotated[TargetFormat, typer.Option("--to", help="timestamped or plain.", rich_help_panel=_TARGET)],
    *,
    layout: LayoutOption = None,
    timestamp_ms: TimestampOption = None,
    shard_by: ShardByOption = ShardBy.KEY,
    dry_run: DryRunOption = False,
    of_source: SourceGroup,
    as_json: o.JsonOption = False,
) -> None:
    """Rebuild stores in an older format in a new place, as they would be restored from their changelogs.

    Headers are lost there, and with --to plain timestamps, too; the source is not changed. Kafka Streams opens no store
    with headers in an older format. To rebuild one from a changelog topic instead, use `changelog restore` and name the
    older kind.
    """
    request = of_source.request(
        source, target, to=to, layout=layout, timestamp_ms=timestamp_ms, shard_by=shard_by.value, dry_run=dry_run
    )
    _run(request, downgrade, as_json=as_json)


def finish_upgrade_(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A task's or application's directory.", callback=o.not_empty)
    ],
    *,
    discard_backup: DiscardOption = False,
    dry_run: DryRunOption = False,
    stores: StoresGroup,
    tasks: o.TaskGroup,
    work_dir: o.WorkDirOption = None,
    as_json: o.JsonOption = False,
) -> None:
    """Convert in place the entries that a lazy upgrade has not converted yet.

    Tasks without such entries are not changed; the others leave a backup.
    """
    names, options = stores.read_stores(o.SpanGroup())
    request = MigrationRequest(
        directory,
        stores=names,
        store_options=options,
        **tasks.chosen(),
        discard_backup=discard_backup,
        work_dir=work_dir,
        dry_run=dry_run,
    )
    _run(request, finish_upgrade, as_json=as_json)


def _run(
    request: MigrationRequest, command: Callable[[MigrationRequest, OnProgress], MigrationReport], *, as_json: bool
) -> None:
    with progress_bar() as progress:
        task = progress.add_task("reading" if request.dry_run else "migrating and verifying", total=None)
        report = command(request, lambda done, total: progress.update(task, completed=done, total=total))
    if as_json:
        print_json(migration_document(report))
    else:
        _print(report)


def _print(report: MigrationReport) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("store", "was", "dry run: would be" if report.dry_run else "is"):
        table.add_column(column)
    table.add_column("entries", justify="right")
    for store in report.stores:
        table.add_row(printable(store.name), store.kind.value, store.migrated.value, f"{store.entries:,}")
    results().print(table)
    parts = ", ".join(map(str, report.parts)) or "none"
    console = results()
    say(console, f"{report.source} -> {report.target} ({report.layout}); parts: {parts}")
    if report.dry_run:
        free = "" if report.free_bytes is None else f", {report.free_bytes:,} are free"
        say(
            console,
            f"{report.size_bytes:,} bytes of keys and values; about {report.needed_bytes:,} bytes are needed{free}",
        )
    else:
        say(
            console,
            f"verified entry by entry, {report.elapsed_s:.1f} s, {report.entries / report.elapsed_s:,.0f} entries/s",
        )
    if report.left_out:
        say(console, f"not asked for: {', '.join(report.left_out)}")
    for backup in report.backups:
        say(console, f"what was there before: {backup} (remove it when all is well)")
    for note in report.notes:
        say(errors(), f"note: {note}")


def _offsets(file: Path | None) -> dict[str, dict[int, int]]:
    if file is None:
        return {}
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        return {
            topic: {whole_number(json.loads(number), 0): whole_number(offset, 0) for number, offset in offsets.items()}
            for topic, offsets in fields.items()
        }
    except (OSError, *MALFORMED) as cause:
        raise typer.BadParameter(f"can't be read as offsets ({cause})", param_hint="--changelog-offsets") from cause
