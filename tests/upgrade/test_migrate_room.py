"""Room on the disk and in memory: what is there already counts, and values are not gathered."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from upgrade_tools.errors import NoRoomError
from upgrade_tools.migration.disk_space import estimated_bytes, held_bytes
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.plan import plan_migration
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout

TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)

Free = Callable[[int], None]


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    """Has the disk say how much room it has."""

    def has(size_bytes: int) -> None:
        usage = type("Usage", (), {"free": size_bytes})
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage)

    return has


def add(application: Path, part: int, entries: int = 4, value: bytes = bytes(1000)) -> None:
    with TaskDirectory(application / f"0_{part}", "shop", part) as task:
        task.open_store(TOTALS).write((b"%06d" % number, bytes(8) + value) for number in range(entries))


@pytest.fixture
def application(tmp_path: Path) -> Path:
    for part in range(2):
        add(tmp_path / "shop", part)
    return tmp_path / "shop"


def interrupted(request: MigrationRequest) -> None:
    """Begin a migration, and end it once the first part is read back and the second begins."""

    def interrupt(done: int, total: int) -> None:
        if done > 2 * 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(request, interrupt)


@pytest.mark.parametrize("layout", TargetLayout)
def test_what_is_made_already_needs_no_room(
    application: Path, tmp_path: Path, free: Free, layout: TargetLayout
) -> None:
    target = str(tmp_path / "target")
    request = MigrationRequest(
        str(application), target, TargetFormat.HEADERS, layout, shard_by="partition", work_dir=str(tmp_path)
    )
    plan = plan_migration(request)
    free(estimated_bytes(plan, [0, 1]) - 1)
    with pytest.raises(NoRoomError):
        migrate(request)
    free(1 << 40)
    interrupted(request)
    begun = tmp_path / ("target.migrating" if layout is TargetLayout.KAFKA_STREAMS else "target")
    held = held_bytes([begun])
    whole = migrate(replace(request, dry_run=True)).needed_bytes
    assert whole is not None
    assert held
    free(whole - held)
    assert migrate(replace(request, dry_run=True)).entries == 8
    free(whole - held - 1)
    with pytest.raises(NoRoomError):
        migrate(replace(request, dry_run=True))
    free(estimated_bytes(plan, [1]))
    assert migrate(request).parts == (0, 1)


def test_what_has_nothing_left_to_do_needs_no_room(application: Path, free: Free) -> None:
    request = MigrationRequest(str(application), to=TargetFormat.HEADERS, discard_backup=True)
    task = replace(request, source=str(application / "0_0"))
    migrate(task)
    needed = estimated_bytes(plan_migration(request), [1])
    free(needed - 1)
    with pytest.raises(NoRoomError):
        migrate(request)
    free(needed)
    assert migrate(request).parts == (1,)
    free(1)
    assert "nothing to be done" in migrate(request).notes[0]


def test_a_store_of_large_values_is_compared_in_little_memory(tmp_path: Path) -> None:
    add(tmp_path / "shop", 0, 600, bytes(100_000))
    tracemalloc.start()
    try:
        report = migrate(MigrationRequest(str(tmp_path / "shop"), to=TargetFormat.HEADERS))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.entries == 600
    assert peak_bytes < 80 << 20
