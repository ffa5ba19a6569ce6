"""Makes the task directories of an application from its changelogs, as Kafka Streams would restore them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from statestore.errors import TargetNotEmptyError
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.reading import Changelog, read_records
from upgrade_tools.changelogs.restoring import OnRecords, RestoredStore, restore_task_directory
from upgrade_tools.migration.publishing import sync_entry, sync_tree


def restore_directories(
    cluster: Cluster,
    application_id: str,
    changelogs: Sequence[Changelog],
    target: Path,
    *,
    subtopology: int = 0,
    on_records: OnRecords | None = None,
) -> dict[str, list[RestoredStore]]:
    """Make in `target`, which is empty or missing, a task directory for each partition of the changelogs.

    `target` is what Kafka Streams calls STATE_DIR/APPLICATION_ID. It is there whole or not at all. Returns what came of
    each store, by partition. Raises TargetNotEmptyError and what restoring raises.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TargetNotEmptyError(str(target), found="files")
    restored: dict[str, list[RestoredStore]] = {changelog.spec.name: [] for changelog in changelogs}
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for partition in range(len(changelogs[0].logs)):
            sources = {
                changelog.spec: (changelog.logs[partition], read_records(cluster, changelog.logs[partition]))
                for changelog in changelogs
            }
            task = unfinished / f"{subtopology}_{partition}"
            for name, store in restore_task_directory(task, application_id, sources, on_records).items():
                restored[name].append(store)
        sync_tree(unfinished)
        unfinished.replace(target)
        sync_entry(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return restored
