"""The ingest hook in the test driver: before every source, also for what is piped again."""

from __future__ import annotations

import pytest

from statestore import Serdes, Topology
from statestore.errors import ProcessorError
from statestore.errors.harness import DriverFailedError
from statestore.middleware import IngestedRecord
from statestore.testing import TopologyTestDriver
from tests.support.driver_topologies import chain, input_of, output_of, storing

TEXT = Serdes.string()


def admit(record: IngestedRecord) -> IngestedRecord | None:
    if record.value == b"boom":
        raise KeyError("no tenant")
    record.headers.add("hop", record.topic.encode() + b"-%d" % record.offset)
    return None if record.value == b"drop" else record


def test_records_are_changed_and_left_out_before_the_sources() -> None:
    with TopologyTestDriver(chain(), interceptors=admit) as driver:
        input_of(driver).pipe_value_list(["a", "drop", "b"])
        found = output_of(driver).read_records_to_list()
        assert [(record.value, list(record.headers)) for record in found] == [
            ("a", [("hop", b"in-0")]),
            ("b", [("hop", b"in-2")]),
        ]


def test_what_is_piped_again_is_ingested_again() -> None:
    topology = Topology()
    topology.add_source("first", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_sink("between-out", "between", ["first"])
    topology.add_source("second", "between", key_serde=TEXT, value_serde=TEXT)
    topology.add_sink("out", "out", ["second"])
    with TopologyTestDriver(topology, interceptors=admit) as driver:
        input_of(driver).pipe_input("k", "v")
        assert list(output_of(driver).read_record().headers) == [("hop", b"in-0"), ("hop", b"between-0")]


def test_a_failing_hook_commits_nothing_and_stops_the_driver() -> None:
    with TopologyTestDriver(storing("kv"), interceptors=admit) as driver:
        source = input_of(driver)
        source.pipe_input("k", "v")
        with pytest.raises(
            ProcessorError, match=r"'admit' failed in on_ingest\(\) on record in-0 at offset 1: KeyError"
        ):
            source.pipe_input("k", "boom")
        with pytest.raises(DriverFailedError):
            source.pipe_input("k", "w")
        driver.restart()
        store = driver.get_key_value_store("s")
        assert store is not None
        assert store.get("k") == "v"
