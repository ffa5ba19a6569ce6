"""Task directories of Kafka Streams, one or all those of an application, read through views."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from statestore.bytestore.directory_view import refuse_if_in_use, view_of
from statestore.bytestore.kafka_streams_layout import (
    CHECKPOINT_FILE,
    database_directory,
    has_segment_directories,
    position_file,
    segments_directory,
)
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.bytestore.task_contents import TaskStoreFiles, changelog_topics, task_stores
from statestore.bytestore.task_directory import TaskDirectory
from statestore.errors import DirectoryNotAccessibleError
from upgrade_tools.kinds import Kind
from upgrade_tools.states.families import kinds_by_families
from upgrade_tools.states.state import FoundStore, Layout, OpenStore, State, StateOptions

TASK_NAME: Final = re.compile(r"(?P<subtopology>[0-9]+)_(?P<partition>[0-9]+)")
APPLICATION_LOCK: Final = ".lock"
_SEGMENTED: Final = tuple(kind for kind in StoreKind if has_segment_directories(kind))
_IN_ONE_DATABASE: Final = tuple(kind for kind in StoreKind if not has_segment_directories(kind))
_UNNAMED_APPLICATION: Final = "application"


def possible_kinds(files: TaskStoreFiles) -> tuple[Kind, ...]:
    """Return what a store may be by what is recorded of it, by where its databases are and by their families."""
    recorded = files.recorded
    families = {family for present in files.families for family in present}
    if recorded is not None:
        return kinds_by_families([recorded.kind], families, recorded)
    return kinds_by_families(_SEGMENTED if files.segmented else _IN_ONE_DATABASE, families)


class TaskState(State):
    """The stores of some tasks of one subtopology: part n is the task of partition n."""

    def __init__(self, path: Path, tasks: Mapping[int, Path], layout: Layout, options: StateOptions) -> None:
        super().__init__(str(path), layout, sorted(tasks), options)
        self._tasks = dict(tasks)

    def found_stores(self) -> list[FoundStore]:
        """Return what there is, in the order of names."""
        found: dict[str, list[TaskStoreFiles]] = {}
        with accessible(self.path):
            for task in self._tasks.values():
                for files in task_stores(task):
                    found.setdefault(files.name, []).append(files)
            return [self._found(name, parts) for name, parts in sorted(found.items())]

    def _found(self, name: str, parts: list[TaskStoreFiles]) -> FoundStore:
        kinds = [possible_kinds(files) for files in parts]
        fewest = min(kinds, key=len)
        return FoundStore(
            name,
            fewest,
            next((spec for files in parts if (spec := files.recorded) is not None), None),
            tuple(sorted({family for files in parts for present in files.families for family in present})),
            sum(size_of(path) for files in parts for path in files.databases),
            sum(len(files.databases) for files in parts),
        )

    @contextmanager
    def open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
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
                store = directory.open_store(spec)
                stores[spec.name] = OpenStore(
                    spec, store, -1, directory.changelog_offset(spec.name), directory.position(spec.name)
                )
            yield stores

    def _application_id(self, view: Path, task: Path, specs: Sequence[StoreSpec]) -> str:
        """Return the id that the changelog offsets are named by, what the user says, or the directory's name."""
        if self.options.application_id is not None:
            return self.options.application_id
        topics = changelog_topics(view)
        for spec in specs:
            suffix = f"-{spec.name}-changelog"
            found = {topic.removesuffix(suffix) for topic in topics if topic.endswith(suffix)}
            if len(found) == 1:
                return found.pop()
        return task.parent.name if TASK_NAME.fullmatch(task.name) else _UNNAMED_APPLICATION


def size_of(directory: Path) -> int:
    """Return how many bytes the files of a database take."""
    return sum(entry.stat().st_size for entry in os.scandir(directory) if entry.is_file())


def _entries_of(task: Path, store: str) -> list[str]:
    """Return what belongs to a store in a task's directory."""
    paths = (database_directory(task, store), segments_directory(task, store), position_file(task, store))
    return [str(path.relative_to(task)) for path in paths]


@contextmanager
def accessible(path: str) -> Iterator[None]:
    """Turn the operating system's refusals into DirectoryNotAccessibleError."""
    try:
        yield
    except PermissionError as cause:
        raise DirectoryNotAccessibleError(path, cause=str(cause)) from cause
