"""What a query's Python processes import, and when: each of them is waited for at the start of a query."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle

from orders import running_total_topology, seeded_orders
from statestore import Processor, ProcessorContext, Record, Serdes, Topology
from statestore.interception.failures import FailureHandling
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.drivers import light_processor
from statestore.spark.shards.shard_call import ShardCall
from tests.support.spark.queries import OrderQuery

ARCHIVE = Path(pyspark.__file__).parent / "python/lib/pyspark.zip"
# As Spark does on the driver before it plans the first batch, to learn which state variables there are. What Spark
# imports by itself, which is numpy before 4.2, it imports without us, too.
ASK_FOR_VARIABLES = """
import sys
from pyspark import cloudpickle
class Handle:
    def getValueState(self, name, schema): print(name, schema)
of_spark = set(sys.modules)
processor = cloudpickle.loads(sys.stdin.buffer.read())
processor.init(Handle())
processor.close()
print(*sorted({"statestore", "orders", "pandas", "pyarrow", "numpy"} & set(sys.modules) - of_spark))
"""
# What Python does when Spark tells a new worker where the files of its query are.
LOOK_AT_PATHS_AGAIN = """
import importlib, sys
from zipimport import zipimporter
from statestore.spark import python_daemon
def archives(): return [path for path, found in sys.path_importer_cache.items() if isinstance(found, zipimporter)]
assert archives()
python_daemon.forget_archives()
importlib.invalidate_caches()
assert not archives()
import pyspark.sql.streaming.transform_with_state_driver_worker as found_again
print(found_again.__file__)
"""


def test_the_driver_s_python_learns_the_state_variables_without_the_topology(tmp_path: Path) -> None:
    topology = running_total_topology()
    location = DurableLocation.of(tmp_path / "state")
    state = ShardedState("state", location, topology.store_specs(), LocalDirectory.of(str(tmp_path)))
    call = ShardCall(topology, state, (0,), FailureHandling(), 0)
    pickled: bytes = cloudpickle.dumps(light_processor(call))
    command = [sys.executable, "-c", ASK_FOR_VARIABLES]
    said = subprocess.run(command, input=pickled, stdout=subprocess.PIPE, check=True).stdout.decode()
    assert said == "pointer pointer string\n\n"


def test_new_workers_do_not_read_the_archive_of_spark_again() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ARCHIVE), *sys.path])}
    command = [sys.executable, "-c", LOOK_AT_PATHS_AGAIN]
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode()
    assert said.startswith(str(ARCHIVE))


class AddDaemon(Processor):
    """Puts out which process the worker is a fork of, behind what the value says."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[bytes, bytes]) -> None:
        self.context.forward(record.with_value(b"%b %d" % (record.value, os.getppid())))


def daemon_as_value(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        daemons = pa.array([b"%d" % os.getppid()] * batch.num_rows, pa.binary())
        yield batch.set_column(batch.schema.names.index("value"), "value", daemons)


def test_all_workers_of_a_query_are_forks_of_one_daemon(order_query: OrderQuery) -> None:
    serde, topology = Serdes.bytes(), Topology()
    topology.add_source("in", key_serde=serde, value_serde=serde)
    topology.add_processor("daemon", AddDaemon, ["in"])
    topology.add_sink("out", "out", ["daemon"])
    order_query.add(seeded_orders(5, 1))
    rows = order_query.records()
    order_query.run(topology, records=rows.mapInArrow(daemon_as_value, rows.schema), shards=1)
    (said,) = {bytes(row.value) for row in order_query.outputs}
    before_the_shards, of_the_shards = said.split()
    assert before_the_shards == of_the_shards


# Freed arrays of 64 MiB, as a batch leaves them to a worker that waits for the next one.
FREED = """
import numpy, pyarrow as pa
from statestore.spark.shards.pack import Pack
from statestore.spark.shards.pack import unpack
def anonymous_mib():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("RssAnon:"))
    return int(line.split()[1]) // 1024
places = pa.array(numpy.arange(1 << 17))
taken = [places.take(places) for _ in range(64)]
del taken
held = anonymous_mib()
list({step}(iter([])))
print(held - anonymous_mib())
"""


@pytest.mark.parametrize("step", ["Pack(1, 'key', (0,))", "unpack"])
def test_a_worker_that_waits_keeps_no_memory_that_arrow_has_freed(step: str) -> None:
    command = [sys.executable, "-c", FREED.format(step=step)]
    given_back_mib = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert given_back_mib > 32
