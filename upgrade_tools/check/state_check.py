"""Reads all of a state, and reports what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from statestore.bytestore.engines.table_files import unreadable_tables
from statestore.bytestore.kafka_streams.directory_view import accessible
from statestore.bytestore.kafka_streams.layout import SegmentSpan, segment_spans
from statestore.bytestore.kinds.store_spec import StoreSpec, index_family
from statestore.errors import RecoveryError
from statestore.errors.new_state import DirectoryDamagedError
from statestore.errors.state import LocalStateCorruptedError
from upgrade_tools.check.location_check import location_problems
from upgrade_tools.check.store_check import Problems, StoreCheck
from upgrade_tools.errors import StateWentOnError
from upgrade_tools.states.database import Database, OpenFamilies
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import READING_INTERVAL_MS, State

_DAMAGE = (DirectoryDamagedError, LocalStateCorruptedError, RecoveryError)
OnRead = Callable[[int], None]


@dataclass
class CheckReport:
    """The result of a check."""

    path: str
    problems: Problems = field(default_factory=Problems)
    """Problems with files and databases as a whole."""
    stores: list[StoreCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was read, in words, and what was not."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.all_problems()

    def all_problems(self) -> list[str]:
        """Return what is wrong, in words; if one store has many problems, the first, and how many more."""
        found = []
        for where, problems in (
            ("", self.problems),
            *((f"{check.spec.name}: ", check.problems) for check in self.stores),
        ):
            found += [f"{where}{problem}" for problem in problems.named]
            if problems.not_named:
                found.append(f"{where}and {problems.not_named} more")
        return found


def check_state(state: State, on_read: OnRead) -> CheckReport:
    """Read everything: files with their checksums, tables to their end, each entry. Damage is in the report.

    `on_read` is told how many entries were read, and files of a state location. Memory does not grow with the state; a
    shard of a state location is restored at a time. Raises StoreError for a store that is not what the options say, and
    StateDirectoryError for what can't be read for other reasons than damage.
    """
    report = CheckReport(state.path)
    if isinstance(state, LocationState):
        problems, report.notes = location_problems(state, on_read)
        for problem in problems:
            report.problems.add(problem)
        if not state.knows_pointers:
            report.notes.append(
                "entries were not read: to have them read, say what is committed with --checkpoint or --pointers"
            )
            return report
    checks = {spec.name: StoreCheck(spec, _interval_ms(spec)) for spec in state.specs()}
    report.stores = list(checks.values())
    for part in state.parts:
        _check_part(state, part, checks, report, on_read)
    return report


def _check_part(state: State, part: int, checks: dict[str, StoreCheck], report: CheckReport, on_read: OnRead) -> None:
    damaged = report.problems.count
    databases = state.databases(part)
    spans = _spans(databases)
    for database in databases:
        if database.store is not None and database.store not in checks:
            continue
        where = database.name if len(state.parts) == 1 else f"part {part}, {database.name}"
        for table in _unreadable(state, database):
            report.problems.add(f"{where}: {table} can't be read to its end")
        try:
            with _opened(state, database) as opened:
                check_database(opened, checks, where, spans.get(database.name), on_read)
        except _DAMAGE as damage:
            if str(damage) not in report.problems.named:  # files of a location were checked before
                report.problems.add(str(damage))
    if report.problems.count == damaged and not isinstance(state, LocationState):
        # Opened as a query or application would, which refuses unknown entries among segments.
        with state.open(part, [check.spec for check in checks.values()]):
            pass


@contextmanager
def _opened(state: State, database: Database) -> Iterator[OpenFamilies]:
    """Hand out a database; if what it is made of was collected, because a query runs, as it is committed by now."""
    with ExitStack() as held:
        try:
            opened = held.enter_context(database.open())
        except StateWentOnError:
            if not isinstance(state, LocationState) or not state.go_on():
                raise
            opened = held.enter_context(database.open())
        yield opened


def check_database(
    opened: OpenFamilies, checks: dict[str, StoreCheck], where: str, span: SegmentSpan | None, on_read: OnRead
) -> None:
    """Check the stores of an open database: entries, and their indexes of headers."""
    for name, families in opened.families.items():
        if name in checks:
            checks[name].refuse_other_kind(families, where)
            index = opened.indexes.get(index_family(checks[name].spec) or "")
            for count in checks[name].check(families, where, span, index):
                on_read(count)


def _spans(databases: list[Database]) -> dict[str, SegmentSpan]:
    """Return the times that belong in each database that is a segment."""
    by_store: dict[str | None, dict[str, int]] = {}
    for database in databases:
        if database.segment_start_ms is not None:
            by_store.setdefault(database.store, {})[database.name] = database.segment_start_ms
    spans: dict[str, SegmentSpan] = {}
    for starts_ms in by_store.values():
        spans.update(zip(starts_ms, segment_spans(starts_ms.values()), strict=True))
    return spans


def _unreadable(state: State, database: Database) -> list[str]:
    with accessible(state.path):
        for table in database.tables:
            if table.exists():
                table.open("rb").close()  # raises if access is denied, which is not damage
    with TemporaryDirectory(prefix="statestore-verify-", dir=state.options.work_dir) as scratch:
        return unreadable_tables(database.tables, Path(scratch, "tables"))


def _interval_ms(spec: StoreSpec) -> int | None:
    """Return the interval of a store's segments, None if it is unknown."""
    return None if spec.segment_interval_ms == READING_INTERVAL_MS else spec.segment_interval_ms
