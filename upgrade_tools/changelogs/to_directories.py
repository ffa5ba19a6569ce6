"""Makes the task directories of an application from its changelogs, as Kafka Streams would restore them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from statestore.errors import TargetNotEmptyError
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.reading import ChangelogTopic, read_records
from upgrade_tools.changelogs.restoring import OnRecords, RestoredStore, restore_task_directory
from upgrade_tools.migration.locks import lock_workspace
from upgrade_tools.migration.publishing import sync_entry, sync_tree, write_errors
from upgrade_tools.states.task import TASK_NAME


def restore_directories(
    cluster: Cluster,
    application_id: str,
    changelogs: Sequence[ChangelogTopic],
    target: Path,
    *,
    subtopology: int = 0,
    accept_deleted: bool = False,
    on_records: OnRecords | None = None,
) -> dict[str, list[RestoredStore]]:
    """Make in `target`, which is empty or missing, a task directory for each partition of the changelogs.

    `target` is what Kafka Streams calls STATE_DIR/APPLICATION_ID. It is there whole or not at all. `accept_deleted` is
    that of `restore_task_directory`. Returns the result for each store, by partition. Raises TargetNotEmptyError,
    DirectoryInUseError if another run makes the same, DirectoryNotAccessibleError, and what restoring raises.
    """
    final = target.resolve()  # so that a link to the directory stays
    unfinished = final.parent / f".{final.name}.unfinished"
    restored: dict[str, list[RestoredStore]] = {changelog.spec.name: [] for changelog in changelogs}
    with write_errors(final.parent):
        final.parent.mkdir(parents=True, exist_ok=True)
    with lock_workspace(unfinished):
        _refuse_occupied(final)
        _clear_leftover(unfinished)
        try:
            for partition in range(len(changelogs[0].logs)):
                sources = {
                    changelog.spec: (changelog.logs[partition], read_records(cluster, changelog.logs[partition]))
                    for changelog in changelogs
                }
                task = unfinished / f"{subtopology}_{partition}"
                stores = restore_task_directory(
                    task, application_id, sources, on_records, accept_deleted=accept_deleted
                )
                for name, store in stores.items():
                    restored[name].append(store)
            sync_tree(unfinished)
            _refuse_occupied(final)
            with write_errors(final):
                unfinished.replace(final)
            sync_entry(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return restored


def _refuse_occupied(final: Path) -> None:
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise TargetNotEmptyError(str(final), found="files")


def _clear_leftover(unfinished: Path) -> None:
    """Remove what a killed run has left. Raises TargetNotEmptyError for anything else."""
    if not os.path.lexists(unfinished):
        return
    is_ours = unfinished.is_dir() and all(TASK_NAME.fullmatch(entry.name) for entry in unfinished.iterdir())
    if unfinished.is_symlink() or not is_ours:
        raise TargetNotEmptyError(str(unfinished), found="files of somebody else, in the way of what is to be made")
    shutil.rmtree(unfinished)
