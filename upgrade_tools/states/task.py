"""Task directories of Kafka Streams, one or all those of an application, read through views."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kafka_streams.directory_view import accessible, refuse_if_in_use, tables_in, view_of
from statestore.bytestore.kafka_streams.layout import (
    CHECKPOINT_FILE,
    OFFSETS_FAMILY,
    database_directory,
    has_segment_directories,
    position_file,
    segment_start_ms,
    segments_directory,
)
from statestore.bytestore.kafka_streams.store_database import RecordedOffsets
from statestore.bytestore.kafka_streams.task_directory import (
    TaskDirectory,
    TaskStoreFiles,
    changelog_topics,
    read_offsets,
    task_stores,
)
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, is_store_name
from statestore.bytestore.protocol import ByteStore
from statestore.format.position import Position
from upgrade_tools.states.database import Database, OpenFamilies, kinds_by_families
from upgrade_tools.states.state import FoundStore, Layout, OpenStore, State, StateOptions

TASK_NAME: Final = re.compile(r"(?P<subtopology>[0-9]+)_(?P<partition>[0-9]+)")
APPLICATION_LOCK: Final = ".lock"
_SEGMENTED: Final = tuple(kind for kind in StoreKind if has_segment_directories(kind))
_IN_ONE_DATABASE: Final = tuple(kind for kind in StoreKind if not has_segment_directories(kind))
_UNNAMED_APPLICATION: Final = "application"


def _kinds_at(segmented: bool, recorded: StoreSpec | None) -> tuple[StoreKind, ...]:
    """Return the kinds that a store may be, by its record or else by where its databases are."""
    if recorded is not None:
        return (recorded.kind,)
    return _SEGMENTED if segmented else _IN_ONE_DATABASE


class TaskState(State):
    """The stores of some tasks of one subtopology: part n is the task of partition n."""

    def __init__(self, path: Path, tasks: Mapping[int, Path], layout: Layout, options: StateOptions) -> None:
        super().__init__(str(path), layout, sorted(tasks), options)
        self._tasks = dict(tasks)

    def task_directory(self, part: int) -> Path:
        """Return the directory of the task of a partition."""
        return self._tasks[part]

    def found_stores(self) -> list[FoundStore]:
        """Return what there is, in the order of names."""
        found: dict[str, list[TaskStoreFiles]] = {}
        with accessible(self.path):
            for task in self._tasks.values():
                for files in task_stores(task):
                    found.setdefault(files.name, []).append(files)
            return [self._found(name, parts) for name, parts in sorted(found.items())]

    def _found(self, name: str, parts: list[TaskStoreFiles]) -> FoundStore:
        families = {family for files in parts for present in files.families for family in present}
        recorded = next((spec for files in parts if (spec := files.recorded) is not None), None)
        places = sorted({files.segmented for files in parts})
        possible = [kinds_by_families(_kinds_at(segmented, recorded), families, recorded) for segmented in places]
        return FoundStore(
            name,
            tuple(dict.fromkeys(kind for kinds in possible for kind in kinds)),
            recorded,
            tuple(sorted(families)),
            sum(size_of(path) for files in parts for path in files.databases),
            sum(len(files.databases) for files in parts),
        )

    @contextmanager
    def _open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
        """Hand out these stores of the task of a partition."""
        task = self._tasks[part]
        refuse_if_in_use(task.parent / APPLICATION_LOCK, task)
        with ExitStack() as opened:
            names = [entry for spec in specs for entry in _entries_of(task, spec.name)]
            with accessible(str(task)):
                view = opened.enter_context(view_of(task, CHECKPOINT_FILE, *names, work_dir=self.options.work_dir))
                application_id = self._application_id(view, task, specs)
            directory = opened.enter_context(TaskDirectory(view, application_id, part, compacting=False))
            stores = {}
            for spec in specs:
                # In a view: what an upgrade changes is thrown away.
                store = directory.open_store(replace(spec, through_timestamped=True))
                stores[spec.name] = OpenStore(
                    spec,
                    store,
                    -1,
                    directory.changelog_offset(spec.name),
                    directory.position(spec.name),
                    application_id=application_id,
                    closed_cleanly=directory.was_closed_cleanly(spec.name),
                )
            yield stores

    def databases(self, part: int) -> list[Database]:
        """Return the databases of a task's stores."""
        task = self._tasks[part]
        with accessible(str(task)):
            return [
                Database(
                    str(path.relative_to(task)),
                    partial(self._families, task, files.name, path),
                    files.name,
                    segment_start_ms(files.name, path.name) if files.segmented else None,
                    tables_in(path),
                )
                for files in task_stores(task)
                for path in files.databases
            ]

    def offset_files(self, part: int, store: str) -> RecordedOffsets:
        """Return the offsets that Kafka Streams before 4.3 left in files, which override those in databases.

        Raises StoreError if a file is damaged.
        """
        task = self._tasks[part]
        position: Position = {}
        with accessible(str(task)):
            for (topic, partition), offset in read_offsets(position_file(task, store), store).items():
                position.setdefault(topic, {})[partition] = offset
            checkpoint = read_offsets(task / CHECKPOINT_FILE, store)
        changelogs = {key: offset for key, offset in checkpoint.items() if key.topic.endswith(f"-{store}-changelog")}
        return RecordedOffsets(changelogs, position, None)

    @contextmanager
    def _families(self, task: Path, store: str, path: Path) -> Iterator[OpenFamilies]:
        refuse_if_in_use(task.parent / APPLICATION_LOCK, task)
        with view_of(path, work_dir=self.options.work_dir) as view:
            database = RocksDBDatabase(str(view), [], compacting=False)
            try:
                families: dict[str, ByteStore] = {name: database.family(name, store) for name in database.families}
                offsets = families.pop(OFFSETS_FAMILY, None)
                yield OpenFamilies({store: families}, offsets=offsets)
            finally:
                database.close()

    def _application_id(self, view: Path, task: Path, specs: Sequence[StoreSpec]) -> str:
        """Return the id that the user gives, that changelog offsets are named by, or the directory's name."""
        if self.options.application_id is not None:
            return self.options.application_id
        # Longest first: with stores `b` and `a-b`, the topic `x-a-b-changelog` belongs to the second.
        names = sorted((files.name for files in task_stores(task)), key=len, reverse=True)
        asked = {spec.name for spec in specs}
        for topic in changelog_topics(view):
            store = next((name for name in names if topic.endswith(f"-{name}-changelog")), None)
            if store in asked:
                return topic.removesuffix(f"-{store}-changelog")
        # No offset is named by it, so any valid name will do.
        is_named = TASK_NAME.fullmatch(task.name) and is_store_name(task.parent.name)
        return task.parent.name if is_named else _UNNAMED_APPLICATION


def size_of(directory: Path) -> int:
    """Return how many bytes the files of a database take."""
    return sum(entry.stat().st_size for entry in os.scandir(directory) if entry.is_file())


def _entries_of(task: Path, store: str) -> list[str]:
    """Return the paths in a task's directory that belong to a store."""
    paths = (database_directory(task, store), segments_directory(task, store), position_file(task, store))
    return [str(path.relative_to(task)) for path in paths]
