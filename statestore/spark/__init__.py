"""The bridge to Spark Structured Streaming: pack, shard call, unpack, and two drivers of the same call.

stateful        the entry: a topology as an operator of a query; query_stages: as several; drivers: Spark's entry points
shards          what a shard is given and gives back, and the call between
dataframes      turns DataFrames into records and back, and works on them
checkpoints     what a checkpoint says; start_refusal: checks that are possible only when a query starts
figures         the figures of a batch; listener: who is told; metrics: Prometheus and OpenTelemetry; messaging_metrics:
                those that OpenTelemetry names
heads           publishes what a batch has committed
recommendation, query_settings, python_daemon
                how Spark is set up
code_on_workers whether workers can load the code of a topology
sessions        classic ones and those of Spark Connect, where the server touches the state location
query_failure   how an error in a worker reaches the driver, as JSON or in the text of Spark's error
spark_versions  what differs between versions of Spark
datasource      state as rows; its `reader`: the same as a function
kafka_sink      exactly once to Kafka
header_functions  functions of columns of headers, for any DataFrame

Imports all layers below; nothing imports it. Start at `shards/shard_call`, then `stateful`.
"""

# First: it refuses a Spark that is too old for the other imports.
import statestore.spark.spark_versions as _spark_versions  # noqa: F401  # isort: split
from statestore.spark.checkpoints.checkpoint import committed_options, read_pointers
from statestore.spark.checkpoints.rescale import rescale
from statestore.spark.dataframes.dataframe_middleware import with_middleware
from statestore.spark.dataframes.dataframe_streams import DataFrameStreams
from statestore.spark.dataframes.each_record import for_each_record
from statestore.spark.dataframes.from_records import from_records
from statestore.spark.dataframes.per_key import HeaderStatefulProcessor, per_key_topology
from statestore.spark.dataframes.to_records import to_records
from statestore.spark.datasource.reader import read_store
from statestore.spark.datasource.source import register_data_source
from statestore.spark.datasource.writer import write_initial_state
from statestore.spark.figures import BatchFigures, batch_figures
from statestore.spark.listener import StateStoreListener
from statestore.spark.query_failure import error_of
from statestore.spark.recommendation import recommended_settings
from statestore.spark.stateful import MemoryOptions, stateful

__all__ = [
    "BatchFigures",
    "DataFrameStreams",
    "HeaderStatefulProcessor",
    "MemoryOptions",
    "StateStoreListener",
    "batch_figures",
    "committed_options",
    "error_of",
    "for_each_record",
    "from_records",
    "per_key_topology",
    "read_pointers",
    "read_store",
    "recommended_settings",
    "register_data_source",
    "rescale",
    "stateful",
    "to_records",
    "with_middleware",
    "write_initial_state",
]
