"""The fixture that statestore gives to pytest: it is there in every project that has statestore installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.errors.harness import DriverClosedError
from statestore.testing import TopologyTestDriver
from statestore.testing.pytest_plugin import topology_test_driver as plugin_fixture
from tests.support.driver_topologies import chain, input_of, output_of, storing

MakeDriver = Callable[..., TopologyTestDriver]

USER_TEST = """
from statestore import Serdes, Topology

drivers = []

def test_a_driver(topology_test_driver):
    topology = Topology()
    topology.add_source("in", "in", key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_sink("out", "out", ["in"])
    driver = topology_test_driver(topology, application_id="mine")
    drivers.append(driver)
    serdes = {"key_serde": Serdes.string(), "value_serde": Serdes.string()}
    driver.create_input_topic("in", **serdes).pipe_input("k", "v")
    assert driver.create_output_topic("out", **serdes).read_value() == "v"

def test_it_was_closed():
    from statestore.errors.harness import DriverClosedError
    try:
        drivers[0].metrics()
    except DriverClosedError:
        return
    raise AssertionError("it is open")
"""

CONFTEST = """
import sys

def pytest_report_header():
    heavy = [name for name in ("pyspark", "pandas") if name in sys.modules]
    return f"imported at the start: {heavy}"
"""


def test_drivers_are_made_below_tmp_path(topology_test_driver: MakeDriver, tmp_path: Path) -> None:
    first = topology_test_driver(storing("kv"))
    second = topology_test_driver(storing("kv"), application_id="second", initial_wall_clock_time_ms=7)
    for driver in (first, second):
        input_of(driver).pipe_input("k", "v")
        assert output_of(driver).read_value() == "v"
    assert second.wall_clock_time_ms == 7
    assert (tmp_path / "statestore-1" / "test-application" / "0_0").is_dir()
    assert (tmp_path / "statestore-2" / "second" / "0_0").is_dir()


def test_the_state_directory_can_be_chosen(topology_test_driver: MakeDriver, tmp_path: Path) -> None:
    driver = topology_test_driver(storing("kv"), state_dir=tmp_path / "mine")
    input_of(driver).pipe_input("k", "v")
    driver.close()
    again = topology_test_driver(storing("kv"), state_dir=tmp_path / "mine")
    store = again.get_key_value_store("s")
    assert store is not None
    assert store.get("k") == "v"


def test_all_are_closed_when_the_test_ends(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    fixture = plugin_fixture.__wrapped__(tmp_path)  # type: ignore[attr-defined]
    make = next(fixture)
    drivers = [make(chain()), make(chain())]
    assert [driver.stream_time_ms for driver in drivers] == [-1, -1]
    assert next(fixture, None) is None
    for driver in drivers:
        with pytest.raises(DriverClosedError):
            driver.metrics()


def test_another_project_has_the_fixture_and_does_not_wait_for_spark(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USER_TEST)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "2 passed" in run.stdout, run.stdout + run.stderr
    assert "imported at the start: []" in run.stdout
