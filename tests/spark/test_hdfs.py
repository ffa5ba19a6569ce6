"""State on HDFS itself: a name node and data nodes that go away and come back, and a client without Hadoop."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from orders import expected_totals, seeded_orders
from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_files import is_partial
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.hdfs import NativeHdfs
from statestore.recovery.location.retrying import Retrying
from statestore.recovery.metadata.agreement import claim
from tests.support.documentation import ROOT, run_page
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.hdfs_server import Hdfs, running_hdfs
from tests.support.spark.heads import wait_for_head
from tests.support.spark.queries import OrderQuery

pytestmark = pytest.mark.slow

ORDERS = seeded_orders(60)
LARGE = bytes(range(256)) * (36 << 10)
"""More than a chunk of a download."""
DIES_IN_THE_MIDDLE = """
import os, signal, sys
from statestore import DurableLocation
from statestore.recovery.location.durable_files import Content

def chunks():
    yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)

DurableLocation(sys.argv[1])._write("large", Content(2 << 20, chunks))
"""


@pytest.fixture(scope="module")
def hdfs(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs"), data_nodes=4) as cluster:
        yield cluster


def test_files_are_written_replaced_read_listed_and_deleted(hdfs: Hdfs, tmp_path: Path) -> None:
    location = DurableLocation(hdfs.uri("a%20state/of mine?replication=2"))
    assert isinstance(location.open_filesystem()[0], NativeHdfs), "not libhdfs"
    location.check_writable()
    assert location.entries("") == []
    location.write("shards/0001/x", b"content")
    location.write("shards/0001/x", pa.py_buffer(bytes(range(256))))
    assert location.read("shards/0001/x", MAX_BYTES) == bytes(range(256))
    assert location.read("shards/0001/none", MAX_BYTES) is None
    found = location.entries("shards/0001")
    assert [(entry.name, entry.size_bytes) for entry in found] == [("shards/0001/x", 256)], "nothing of a replacement"
    assert (found[0].modified_ms or 0) > 1_500_000_000_000
    assert location.directories("") == ["shards"]
    (tmp_path / "large").write_bytes(LARGE)
    location.write_file("large", tmp_path / "large")
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE
    location.delete_all(["large", "shards/0001/x", "none"])
    location.remove_directory("shards/0001")
    location.remove_directory("shards/0001")
    assert location.directories("shards") == []


def test_the_page_begins_on_hdfs(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE", hdfs.uri("first query"))
    location = run_page(ROOT / "docs" / "durable-locations.md", with_spark=False).location
    assert isinstance(location.open_filesystem()[0], NativeHdfs)
    assert location.entries("") == []


def test_a_writer_killed_in_the_middle_leaves_a_partial_file_alone(hdfs: Hdfs) -> None:
    location = DurableLocation(hdfs.uri("killed"))
    writer = subprocess.run([sys.executable, "-c", DIES_IN_THE_MIDDLE, location.uri], check=False)
    assert writer.returncode == -signal.SIGKILL
    assert location.read("large", MAX_BYTES) is None
    assert [is_partial(name) for name in location.names("")] == [True]


def test_tasks_that_claim_a_location_at_once_do_not_fail(hdfs: Hdfs) -> None:
    for number in range(5):
        place = hdfs.uri(f"claimed/{number}")
        with ThreadPoolExecutor(8) as tasks:
            list(tasks.map(lambda _, place=place: claim(DurableLocation(place), "query"), range(8)))
        assert DurableLocation(place).names("owners") == ["owners/query"]


def test_safe_mode_is_waited_out_and_then_named(hdfs: Hdfs) -> None:
    location = DurableLocation(hdfs.uri("safe"), retrying=Retrying(total_s=1))
    location.write("x", b"content")
    hdfs.do("enter safe mode")
    try:
        assert location.read("x", MAX_BYTES) == b"content"
        with pytest.raises(LocationNotWritableError, match=r"Name node is in safe mode.*did not get better within 1 s"):
            location.write("y", b"")
    finally:
        hdfs.do("leave safe mode")
    location.write("y", b"")


def test_another_user_is_refused_in_words(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "guest")
    with pytest.raises(LocationNotWritableError, match=r"Permission denied: user=guest.*give the user"):
        DurableLocation(hdfs.uri("of root")).write("x", b"")
    with pytest.raises(LocationError, match="HADOOP_USER_NAME"):
        DurableLocation(hdfs.uri("state?user=root")).write("x", b"")


def test_a_name_node_that_is_not_there_is_asked_again(hdfs: Hdfs) -> None:
    nowhere = DurableLocation("hdfs://127.0.0.1:1/state", retrying=Retrying(total_s=0.1))
    with pytest.raises(LocationError, match=r"Connection refused.*did not get better within 0.1 s"):
        nowhere.read("x", MAX_BYTES)
    with pytest.raises(LocationError, match=r"No fs.defaultFS setting found"):
        DurableLocation("hdfs:///state").read("x", MAX_BYTES)


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_query_outlives_a_data_node_and_a_restart_of_the_name_node(hdfs: Hdfs, order_query: OrderQuery) -> None:
    order_query.state_location = hdfs.uri("states/totals?replication=2")
    order_query.add(ORDERS[:30])
    order_query.run()
    hdfs.do("stop a data node")
    hdfs.do("restart the name node")
    shutil.rmtree(order_query.home / "local")
    order_query.add(ORDERS[30:])
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)
    assert len(order_query.outputs) == len(ORDERS)
    wait_for_head(order_query.state_location, 1)  # while it can be published: other tests wait for heads, too
    hdfs.do("start it again")
