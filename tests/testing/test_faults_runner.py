"""The harness finds what it is for: parts that lose data on purpose are told, and honest ones pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from statestore.bytestore.engines.rocksdb import RocksDBByteStore, RocksDBDatabase
from statestore.bytestore.protocol import Change
from statestore.errors import LocationError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.testing.faults import (
    Effect,
    Fault,
    FaultEnvironment,
    FaultPlan,
    FaultyLocalDirectory,
    FaultyLocation,
    FileKind,
    Point,
    run_plan,
)
from statestore.testing.faults.disk import FaultyDisk
from statestore.testing.faults.journal import Firing
from statestore.testing.faults.local_state import FaultyDatabase
from statestore.testing.faults.runner import Contents, PlanResult, differences, is_explained
from tests.support.soak.fold_query import FoldQuery

POWER_LOSSES = [
    FaultPlan(seed, (2, 2), (Fault(Point.BETWEEN_RUNS, Effect.POWER_LOSS, amount=seed),)) for seed in range(12)
]
NO_FAULT = FaultPlan(1, (2, 2), ())


def run(plan: FaultPlan, home: Path, environment: type[FaultEnvironment] = FaultEnvironment) -> PlanResult:
    return run_plan(plan, FoldQuery, home / str(plan.seed), make_environment=environment)


@pytest.mark.parametrize("seed", range(25))
def test_honest_parts_pass(seed: int, tmp_path: Path) -> None:
    result = run(FaultPlan.draw(seed), tmp_path)
    assert result.problem is None


def test_most_plans_strike_and_some_make_it_start_again(tmp_path: Path) -> None:
    points = (Point.RECORD, Point.SINK, Point.READ, Point.LIST, Point.DELETE)  # where this query hardly gets to
    plans = [
        plan for plan in map(FaultPlan.draw, range(25, 65)) if not {fault.point for fault in plan.faults} & {*points}
    ]
    results = [run(plan, tmp_path) for plan in plans]
    assert [result.problem for result in results if result.problem] == []
    assert sum(bool(result.fired) for result in results) > len(results) / 2
    assert sum(result.restarts for result in results) > 5


class LocationThatDropsADelta(FaultyLocation):
    """Says that it wrote the second delta."""

    deltas = 0

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self.deltas += FileKind.of(name) is FileKind.DELTA
        if self.deltas != 2 or FileKind.of(name) is not FileKind.DELTA:
            super().write(name, data)


class LocationThatReadsWrong(FaultyLocation):
    """Flips a bit of every delta that is read, which no fault of the plan asks for."""

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        data = super().read(name, max_bytes)
        if data is None or FileKind.of(name) is not FileKind.DELTA:
            return data
        wrong = bytearray(data.to_pybytes())
        wrong[len(wrong) // 2] ^= 1
        return pa.py_buffer(bytes(wrong))


class DiskThatSyncsNoFile(FaultyDisk):
    def sync_file(self, file: BinaryIO) -> None:
        file.flush()


class DiskThatSyncsNoDirectory(FaultyDisk):
    def sync_directory(self, path: str) -> None:
        assert os.path.isdir(path)


class StoreThatForgets(RocksDBByteStore):
    """Takes what a delta changes without a word, and keeps none of it."""

    def __init__(self, store: RocksDBByteStore) -> None:
        self.__dict__ = store.__dict__

    def write(self, changes: Iterable[Change]) -> None:
        assert list(changes), "there was something to write"


class DatabaseThatForgets(FaultyDatabase):
    def family(self, name: str, store: str | None = None) -> RocksDBByteStore:
        return StoreThatForgets(super().family(name, store))


class DirectoryOfSuchDatabases(FaultyLocalDirectory):
    def open_database(self, path: Path, families: Sequence[str]) -> RocksDBDatabase:
        return DatabaseThatForgets(super().open_database(path, families), self._injector)


def with_location(kind: type[FaultyLocation]) -> type[FaultEnvironment]:
    class Environment(FaultEnvironment):
        def make_location(self) -> DurableLocation:
            return kind(self.state_directory, self.injector)

    return Environment


def with_disk(kind: type[FaultyDisk]) -> type[FaultEnvironment]:
    class Environment(FaultEnvironment):
        def make_location(self) -> DurableLocation:
            location = super().make_location()
            location.disk = kind(self.injector)
            return location

    return Environment


class ForgetfulEnvironment(FaultEnvironment):
    def make_local_directory(self) -> FaultyLocalDirectory:
        return DirectoryOfSuchDatabases(self.local_directory, self.injector)


def test_a_delta_that_is_not_written_is_found(tmp_path: Path) -> None:
    result = run(NO_FAULT, tmp_path, with_location(LocationThatDropsADelta))
    assert result.problem is not None
    assert "no fault explains it" in result.problem
    assert "DurableFileMissingError" in result.problem


def test_reads_that_are_wrong_without_a_fault_are_found(tmp_path: Path) -> None:
    result = run(NO_FAULT, tmp_path, with_location(LocationThatReadsWrong))
    assert result.problem is not None
    assert "DurableFileCorruptedError" in result.problem


@pytest.mark.parametrize("kind", [DiskThatSyncsNoFile, DiskThatSyncsNoDirectory])
def test_a_sync_that_is_left_out_is_found(kind: type[FaultyDisk], tmp_path: Path) -> None:
    problems = [run(plan, tmp_path, with_disk(kind)).problem for plan in POWER_LOSSES]
    found = [problem for problem in problems if problem is not None]
    assert len(found) > len(POWER_LOSSES) / 3
    assert all("DurableFileMissingError" in problem or "DurableFileCorruptedError" in problem for problem in found)


def test_a_loss_of_power_costs_nothing_that_was_synced(tmp_path: Path) -> None:
    results = [run(plan, tmp_path) for plan in POWER_LOSSES]
    assert [result.problem for result in results] == [None] * len(results)
    assert all(result.fired for result in results)


class QueryThatReadsItsLocalCopy(FoldQuery):
    """Finds what the local copies hold, as a running query does: a delta that was not applied shows there."""

    def found(self) -> Contents:
        environment = self.environment
        with self._open(environment.state_location, environment.local_dir) as batch:
            return {"totals": dict(batch.stores["totals"].range(None, None))}


def test_writes_that_get_lost_in_the_local_copy_are_found(tmp_path: Path) -> None:
    result = run_plan(NO_FAULT, QueryThatReadsItsLocalCopy, tmp_path, make_environment=ForgetfulEnvironment)
    assert result.problem is not None
    assert result.problem.startswith("wrong results:\ntotals b'")
    assert run_plan(NO_FAULT, QueryThatReadsItsLocalCopy, tmp_path / "honest").problem is None


class LocationWithErrorsOfItsOwn(FaultyLocation):
    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        try:
            super().write(name, data)
        except LocationError as cause:
            raise RuntimeError(cause.problem) from None


def test_an_error_that_is_not_the_one_due_is_found(tmp_path: Path) -> None:
    plan = FaultPlan(1, (4,), (Fault(Point.WRITE, Effect.ERROR_BEFORE, 2, kind=FileKind.DELTA),))
    result = run(plan, tmp_path, with_location(LocationWithErrorsOfItsOwn))
    assert result.problem is not None
    assert "no fault explains it" in result.problem
    assert "injected fault 0" in result.problem
    assert run(plan, tmp_path / "honest").problem is None


class QueryThatSwallows(FoldQuery):
    """Takes a batch for done whatever happens."""

    def run(self) -> None:
        while self.waiting:
            with suppress(LocationError):
                super().run()
            del self.waiting[:1]


def test_a_batch_that_is_left_out_is_found(tmp_path: Path) -> None:
    plan = FaultPlan(1, (4,), (Fault(Point.APPEND, Effect.NO_SPACE, 2, kind=FileKind.DELTA),))
    result = run_plan(plan, QueryThatSwallows, tmp_path)
    assert result.problem is not None
    assert result.problem.startswith("wrong results:")
    assert run(plan, tmp_path / "honest").problem is None


class HangingQuery:
    """What Spark's query looks like when it hangs."""

    stopped = False

    def awaitTermination(self, timeout: int | None = None) -> bool:
        return False

    def stop(self) -> None:
        self.stopped = True


class QueryThatHangs(FoldQuery):
    def run(self) -> None:
        hanging = HangingQuery()
        try:
            self.environment.wait_for(hanging)
        finally:
            assert hanging.stopped


def test_a_query_that_hangs_is_found(tmp_path: Path) -> None:
    result = run_plan(NO_FAULT, QueryThatHangs, tmp_path)
    assert result.problem == "hung: the query did not end within 120 s and was stopped"


class QueryWithoutWorkers(FoldQuery):
    def run(self) -> None:
        raise RuntimeError("Python worker failed to connect back.")


def test_a_query_that_never_works_again_is_found(tmp_path: Path) -> None:
    result = run_plan(NO_FAULT, QueryWithoutWorkers, tmp_path)
    assert result.problem == "still fails after 12 restarts"


def test_a_query_restarts_as_often_as_its_faults_strike(tmp_path: Path) -> None:
    plan = FaultPlan(1, (4,), (Fault(Point.APPEND, Effect.NO_SPACE, 2, times=15, kind=FileKind.DELTA),))
    result = run(plan, tmp_path)
    assert result.problem is None
    assert result.restarts == 15


def test_what_fails_in_the_harness_is_no_success(tmp_path: Path) -> None:
    def no_query(environment: FaultEnvironment) -> FoldQuery:
        raise LookupError("no query here")

    result = run_plan(NO_FAULT, no_query, tmp_path)
    assert result.problem is not None
    assert "no query here" in result.problem


@pytest.mark.parametrize("kind", [FileKind.DELTA])
@pytest.mark.parametrize("amount", [400, 1_400, 2_400])
def test_a_file_that_rots_is_named_and_brought_back(kind: FileKind, amount: int, tmp_path: Path) -> None:
    fault = Fault(Point.BETWEEN_RUNS, Effect.ROT, 2, kind=kind, amount=amount)
    lost = Fault(Point.BETWEEN_RUNS, Effect.LOSE_LOCAL, 2)
    result = run(FaultPlan(1, (1, 1, 2), (fault, lost)), tmp_path)
    assert result.problem is None
    assert (result.repairs, result.restarts) == (1, 1)


@pytest.mark.parametrize(
    ("failure", "is_due"),
    [
        ("statestore.errors.run.ProcessorError: node 'x' failed: InjectedFaultError: injected fault 0: error", True),
        ("statestore.errors.harness.InjectedFaultError: injected fault 0: error", True),
        ("statestore.errors.state.LocationError: injected fault 0", False),
        ("statestore.errors.harness.InjectedFaultError: injected fault 1: error", False),
        ("RuntimeError: injected fault 0: error", False),
    ],
)
def test_only_the_error_that_is_due_explains_a_failure(failure: str, is_due: bool) -> None:
    plan = FaultPlan(1, (1,), (Fault(Point.RECORD, Effect.ERROR_BEFORE),))
    assert is_explained(plan, [Firing(0, "orders-0@5")], failure) is is_due
    assert not is_explained(plan, [], failure)


def test_a_worker_that_spark_could_not_start_in_time_is_no_failure_of_the_query() -> None:
    failure = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    assert is_explained(FaultPlan(1, (1,), ()), [], failure)


def make_two(first: Callable[[], Contents]) -> Contents:
    return {"a": {1: 1}, **first()}


def test_differences_name_what_differs() -> None:
    assert differences(make_two(dict), {"a": {1: 1}}) is None
    many = differences({"a": {n: n for n in range(9)}}, {"b": {}})
    assert many is not None
    assert many.count("found 'nothing'") == 5
    assert "and 4 more of 9" in many
    assert "found 2" in str(differences({"a": {1: 1}}, {"a": {1: 2}}))
    assert "expected 'nothing'" in str(differences({"a": {}}, {"a": {1: None}}))
