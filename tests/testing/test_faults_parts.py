"""The parts of the fault harness: plans, the journal, the disk that forgets, and damage that can be undone."""

from __future__ import annotations

import errno
import multiprocessing
import pickle
import signal
from pathlib import Path

import pytest

from statestore.errors import LocationError
from statestore.errors.state import LocalDiskFullError, LocalStateCorruptedError, LocationNotWritableError
from statestore.testing.faults import Effect, Fault, FaultPlan, FaultyLocalDirectory, FaultyLocation, FileKind, Point
from statestore.testing.faults.damage import bring_back, damage, damage_local, flip_bit, rot, rotten_files
from statestore.testing.faults.disk import FaultyDisk, lose_unsynced
from statestore.testing.faults.injector import DISARMED, Injector
from statestore.testing.faults.journal import FaultJournal, Firing

DELTA = "shards/0000/deltas/000000000001-00000001-00000000000000000000000000000000.arrow"


def injector(home: Path, *faults: Fault) -> Injector:
    return Injector(FaultPlan(1, (4,), faults), FaultJournal(home / "journal"))


def location(home: Path, *faults: Fault) -> FaultyLocation:
    return FaultyLocation(home / "state", injector(home, *faults))


def test_a_seed_always_draws_the_same_plan_and_plans_differ() -> None:
    plans = [FaultPlan.draw(seed) for seed in range(1, 701)]
    assert plans[16] == FaultPlan.draw(17)
    assert len({plan.content for plan in plans}) > 680
    assert {fault.point for plan in plans for fault in plan.faults} >= {*Point} - {Point.REMOVE}
    assert {fault.effect for plan in plans for fault in plan.faults} == {*Effect}
    assert all(sum(plan.runs) == 4 and min(plan.runs) > 0 for plan in plans)


def test_the_plan_of_a_seed_is_the_one_that_was_reported() -> None:
    # A seed that is printed today must name the same plan tomorrow: who changes the tables changes this, too.
    assert FaultPlan.draw(4).describe() == "batches 2+2: rot (370) at between runs of metadata #1"


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_prints_as_json_and_reads_back(seed: int) -> None:
    plan = FaultPlan.draw(seed)
    assert FaultPlan.from_json(plan.to_json()) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert all(fault.effect.value in plan.describe() for fault in plan.faults)


def test_no_plan_without_batches() -> None:
    with pytest.raises(ValueError, match="at least one micro-batch"):
        FaultPlan.draw(1, batches=0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("statestore.json", FileKind.METADATA),
        (DELTA, FileKind.DELTA),
        (f"/state/{DELTA}.0123.partial", FileKind.DELTA),
        ("shards/0000/deltas/00000001-run.fence", FileKind.FENCE),
        ("shards/0000/snapshots/1-1-1/manifest.json", FileKind.MANIFEST),
        ("shards/0000/snapshots/1-1-1/000012.sst", FileKind.SNAPSHOT),
        ("owners/query", FileKind.CLAIM),
        ("writable.0123.partial", FileKind.OTHER),
    ],
)
def test_the_kind_of_a_file(name: str, kind: FileKind) -> None:
    assert FileKind.of(name) is kind


def test_a_fault_strikes_at_its_occurrence_and_as_often_as_it_says(tmp_path: Path) -> None:
    faults = injector(tmp_path, Fault(Point.READ, Effect.ERROR_BEFORE, 2, times=2, kind=FileKind.DELTA))
    struck = []
    for name in (DELTA, "statestore.json", DELTA, DELTA, DELTA):
        try:
            with faults.at(Point.READ, name=name, error=OSError):
                struck.append(False)
        except OSError as error:
            struck.append("injected fault 0" in str(error))
    assert struck == [False, False, True, True, False]
    assert faults.journal.fired() == [Firing(0, DELTA)] * 2
    faults.journal.set(DISARMED)


def count_many(journal: FaultJournal, times: int) -> None:
    for _ in range(times):
        journal.note("numbers", journal.count("counter"))


def test_all_processes_count_together(tmp_path: Path) -> None:
    journal = FaultJournal(tmp_path)
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=count_many, args=(journal, 200)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(journal.notes("numbers")) == list(range(1, 401))


def write_and_die(where: FaultyLocation) -> None:
    where.write(DELTA, b"data")


@pytest.mark.parametrize(("effect", "written"), [(Effect.KILL_BEFORE, None), (Effect.KILL_AFTER, b"data")])
def test_a_kill_is_a_kill_but_for_the_driver(effect: Effect, written: bytes | None, tmp_path: Path) -> None:
    where = location(tmp_path, Fault(Point.WRITE, effect, times=2))
    process = multiprocessing.get_context("spawn").Process(target=write_and_die, args=(where,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    found = where.read(DELTA, 4)
    assert (None if found is None else found.to_pybytes()) == written
    with pytest.raises(LocationNotWritableError, match="injected fault 0: kill"):
        where.write(DELTA, b"data")


def test_a_location_fails_cuts_and_flips(tmp_path: Path) -> None:
    where = location(
        tmp_path,
        Fault(Point.WRITE, Effect.ERROR_AFTER, 1),
        Fault(Point.APPEND, Effect.NO_SPACE, 2),
        Fault(Point.READ, Effect.CORRUPT, 1, amount=500),
        Fault(Point.LIST, Effect.ERROR_BEFORE, 1),
    )
    with pytest.raises(LocationNotWritableError, match="injected fault 0"):
        where.write("first", b"0123456789")
    with pytest.raises(LocationNotWritableError, match=r"No space left.*injected fault 1"):
        where.write("second", b"0123456789")
    assert [path.name for path in where.directory.iterdir()] == ["first"]
    flipped_once = where.read("first", 100)
    assert flipped_once is not None
    assert sum(a != b for a, b in zip(flipped_once.to_pybytes(), b"0123456789", strict=True)) == 1
    with pytest.raises(LocationError, match="injected fault 3"):
        where.names("")
    again = where.read("first", 100)
    assert again is not None
    assert again.to_pybytes() == b"0123456789"


def test_without_power_nothing_works(tmp_path: Path) -> None:
    where = location(tmp_path, Fault(Point.SYNC_FILE, Effect.POWER_LOSS))
    for _ in range(2):
        with pytest.raises(LocationNotWritableError, match="power-off"):
            where.write("file", b"data")


@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_durably_survives_every_loss_of_power(seed: int, tmp_path: Path) -> None:
    where = location(tmp_path)
    for number in range(3):
        where.write(f"a/b/{number}", b"data")
    assert lose_unsynced(where._injector.journal, seed) == []
    assert all(where.read(f"a/b/{number}", 100) is not None for number in range(3))


def test_what_is_not_synced_is_lost_in_every_combination(tmp_path: Path) -> None:
    outcomes = set()
    for seed in range(40):
        home = tmp_path / str(seed)
        home.mkdir()
        disk = FaultyDisk(injector(home))
        target = home / "file"
        target.write_bytes(b"old")
        with disk.create(f"{target}.partial") as file:
            disk.append(file, b"newer")
        disk.replace(f"{target}.partial", str(target))
        lose_unsynced(disk._journal, seed)
        outcomes.add(target.read_bytes())
    assert outcomes == {b"old", b"newer", b"ne", b""}


def test_a_name_that_was_removed_may_come_back(tmp_path: Path) -> None:
    disk = FaultyDisk(injector(tmp_path))
    file = tmp_path / "file"
    came_back = set()
    for seed in range(10):
        file.write_bytes(b"data")
        disk.remove(str(file))
        if seed >= 5:
            disk.sync_directory(str(tmp_path))
        lose_unsynced(disk._journal, seed)
        came_back.add((seed < 5, file.exists()))
        file.unlink(missing_ok=True)
    assert came_back == {(True, True), (True, False), (False, False)}


def test_a_disk_that_fails_says_so_as_a_disk_does(tmp_path: Path) -> None:
    disk = FaultyDisk(injector(tmp_path, Fault(Point.CREATE_FILE, Effect.ERROR_BEFORE)))
    with pytest.raises(OSError, match="injected fault 0") as raised:
        disk.create(str(tmp_path / "file"))
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("amount", [300, 1_300, 2_300])
def test_rot_is_undone_from_the_backup(amount: int, tmp_path: Path) -> None:
    journal, state = FaultJournal(tmp_path / "journal"), tmp_path / "state"
    file = state / "deep" / "file"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"0123456789")
    rot(journal, state, "deep/file", amount)
    assert not file.exists() or file.read_bytes() != b"0123456789"
    assert rotten_files(journal) == ["deep/file"]
    assert bring_back(journal, state) == ["deep/file"]
    assert (file.read_bytes(), rotten_files(journal)) == (b"0123456789", [])


@pytest.mark.parametrize(("amount", "how"), [(999, "flipped"), (1_999, "cut"), (2_999, "removed")])
def test_damage_is_never_none(amount: int, how: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert damage(file, amount).startswith(how)
    assert not file.exists() or file.read_bytes() != b"0123456789"
    empty = tmp_path / "empty"
    empty.touch()
    assert damage(empty, amount).startswith("removed"), "there is no other way to damage nothing"
    assert flip_bit(b"", 5) == b""


def test_local_state_that_is_not_there_is_not_damaged(tmp_path: Path) -> None:
    assert damage_local(tmp_path / "local", 7) is None


@pytest.mark.parametrize(
    ("point", "effect", "error"),
    [
        (Point.OPEN_DATABASE, Effect.CORRUPT, LocalStateCorruptedError),
        (Point.WRITE_DATABASE, Effect.NO_SPACE, LocalDiskFullError),
        (Point.READ_DATABASE, Effect.CORRUPT, LocalStateCorruptedError),
        (Point.CLOSE_DATABASE, Effect.CORRUPT, LocalStateCorruptedError),
    ],
)
def test_a_database_fails_and_works_again(point: Point, effect: Effect, error: type[Exception], tmp_path: Path) -> None:
    directory = FaultyLocalDirectory(tmp_path / "local", injector(tmp_path, Fault(point, effect)))
    path = directory.shard("state", 0)
    path.mkdir(parents=True)

    def use() -> bytes | None:
        database = directory.open_database(path / "copy-0", ["totals"])
        try:
            database.family("totals").write([(b"key", b"value")])
            return database.family("totals").get(b"key")
        finally:
            database.close()

    with pytest.raises(error, match="injected fault 0"):
        use()
    assert use() == b"value", "the lock of the database that failed was given back"
