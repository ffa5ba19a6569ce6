"""What a test needs beside Python, marked from the fixtures that it asks for and the folder that it is in.

A test that starts Java without saying so fails, wherever it runs: else what is marked would not be all. With --fast,
nothing runs that needs Spark, Java or Kafka, or that is slow, and pyspark can't be imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from itertools import compress
from pathlib import Path

import pytest

from statestore.errors import HarnessError

TESTS = Path(__file__).parents[1]
SPARK_FOLDER = TESTS / "spark"
SLOW = (
    "architecture",
    "benchmarks/test_peers_run.py",
    "bytestore/test_byte_store_conformance.py",
    "bytestore/test_entry_scan.py",
    "bytestore/test_segment_directories.py",
    "bytestore/test_task_directory.py",
    "bytestore/test_upgrading.py",
    "connect/test_avro.py",
    "connect/test_converters.py",
    "connect/test_values_properties.py",
    "connect/test_vectors.py",
    "docs",
    "dsl/test_branches.py",
    "dsl/test_columns.py",
    "dsl/test_rescaled_time.py",
    "dsl/test_rescaled_windows.py",
    "dsl/test_several_aggregates.py",
    "dsl/test_steps_of_our_own.py",
    "format/test_header_columns.py",
    "format/test_serde_columns.py",
    "format/test_stored_columns.py",
    "format/test_value_timestamp_headers.py",
    "middleware/test_orders.py",
    "middleware/test_polyglot.py",
    "middleware/test_replays.py",
    "middleware/test_signed_stacks.py",
    "middleware/test_trail.py",
    "model",
    "operators/test_keyed_state.py",
    "processor/test_batches.py",
    "processor/test_nothing_of_a_record_in_errors.py",
    "recovery/test_abandoned_checkpoints.py",
    "recovery/test_damaged_files.py",
    "recovery/test_fences.py",
    "recovery/test_first_starts.py",
    "recovery/test_forks.py",
    "recovery/test_garbage.py",
    "recovery/test_golden_state.py",
    "recovery/test_histories.py",
    "recovery/test_kills_and_failed_calls.py",
    "recovery/test_location.py",
    "recovery/test_location_fuse.py",
    "recovery/test_location_gcs.py",
    "recovery/test_location_objects.py",
    "recovery/test_location_s3.py",
    "recovery/test_replay_after_kill.py",
    "recovery/test_rescale.py",
    "recovery/test_rescale_golden.py",
    "recovery/test_rescale_parts.py",
    "recovery/test_snapshots.py",
    "recovery/test_spilling_batch.py",
    "serve/test_command.py",
    "serve/test_page.py",
    "serve/test_pictures.py",
    "simulation",
    "stores/test_bad_input.py",
    "stores/test_expiring.py",
    "stores/test_golden_replay.py",
    "testing/test_faults_parts.py",
    "testing/test_faults_runner.py",
    "testing/test_faults_soak.py",
    "testing/test_pytest_plugin.py",
    "testing/test_soak_model.py",
    "testing/test_topology_test_driver_restart.py",
    "upgrade",
)
"""Folders and files that take seconds of processor time, as `make durations` shows it: processes, servers, models."""
SLOW_PATHS = {TESTS / name for name in SLOW}
LEFT_OUT_WHOLE = {SPARK_FOLDER, *SLOW_PATHS}
MARKS_OF_FIXTURES = {
    "spark": ("spark", "java"),
    "broker": ("java", "kafka"),
    "kafka": ("java", "kafka"),
    "java": ("java",),
    "connect_server": ("spark", "java", "slow"),
}
LEFT_OUT = ("spark", "java", "kafka", "slow")
"""The marks of tests that --fast leaves out."""
JAVA_PROGRAMS = {"java", "spark-submit"}


class UnmarkedNeedError(HarnessError):
    """A test does what it is not marked for."""

    def __init__(self, act: str, mark: str) -> None:
        super().__init__(
            f"this test is to {act}, and is not marked {mark}: it asks for none of the fixtures that mark it, see "
            f"{Path(__file__).name}"
        )
        self.act = act
        self.mark = mark


class Guard:
    """Refuses what the running test is not marked for. Python can't remove an audit hook: it is there to the end."""

    def __init__(self, *, refuses_pyspark: bool) -> None:
        self._refuses_pyspark = refuses_pyspark
        self._may_start_java = True
        sys.addaudithook(self._refuse)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._may_start_java = item.get_closest_marker("java") is not None
        try:
            return (yield)
        finally:
            self._may_start_java = True

    def _refuse(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and not self._may_start_java and is_java(str(arguments[0])):
            raise UnmarkedNeedError(f"start {arguments[0]}", "java")
        if event == "import" and self._refuses_pyspark and str(arguments[0]).partition(".")[0] == "pyspark":
            raise UnmarkedNeedError(f"import {arguments[0]}", "spark")


def is_java(program: str) -> bool:
    """Return whether it is Java itself, or a script of Spark's that starts it; a test's own stand-in is a script."""
    path = Path(program)
    if path.name not in JAVA_PROGRAMS:
        return False
    return path.name != "java" or not path.exists() or path.read_bytes()[:2] != b"#!"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what needs Spark, Java or Kafka, or is slow")
    parser.addoption("--pictures", action="store_true", help="make the pictures of docs anew, with Chromium")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Guard(refuses_pyspark=config.getoption("--fast")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Not only deselected: to collect them takes time, and imports pyspark.
    return True if config.getoption("--fast") and collection_path in LEFT_OUT_WHOLE else None


@cache
def is_slow(path: Path) -> bool:
    """Return whether a file is slow, or in a folder that is."""
    return not SLOW_PATHS.isdisjoint((path, *path.parents))


@pytest.hookimpl(tryfirst=True)  # before -m looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        needs: dict[str, tuple[str, ...]] = {"spark": ("spark", "java")} if SPARK_FOLDER in item.path.parents else {}
        for name in getattr(item, "fixturenames", ()):
            needs[name] = MARKS_OF_FIXTURES.get(name, ())
        if is_slow(item.path):
            item.add_marker("slow")
        for mark in dict.fromkeys(mark for marks in needs.values() for mark in marks):
            item.add_marker(mark)
    if config.getoption("--fast"):
        is_left_out = [any(item.get_closest_marker(mark) for mark in LEFT_OUT) for item in items]
        config.hook.pytest_deselected(items=list(compress(items, is_left_out)))
        items[:] = [item for item, left_out in zip(items, is_left_out, strict=True) if not left_out]
