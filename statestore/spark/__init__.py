"""The bridge to Spark Structured Streaming: pack, shard call, unpack, and two drivers of the same call.

stateful        the door: a topology as an operator of a query; drivers: Spark's two entry points
pack, unpack    rows to blobs before the shuffle, and back; blobs, schema: what crosses it, and the rows at both ends
to_records, from_records
                business columns in and out; encodings: serdes as expressions of Spark's engine
shard_call      one call per shard and batch; record_order: the order of its records
per_key         processors of a key's rows with pandas; each_record: a call for each record
dataframe_middleware  interceptors on a DataFrame without state; dataframe_streams: programs of the DSL on any columns
figures         what a batch came to; listener: whom it is told
recommended_settings, query_settings, python_daemon
                how Spark is set up
start_refusal   what can be known only when a query starts
code_on_workers whether workers can run the code of a topology
sessions        classic ones and those of Spark Connect, whose server touches the state location
query_failure   what the driver is told of an error in a worker; error_record: an error as JSON, and back
spark_versions  what differs between versions of Spark
checkpoint_pointers, source_offsets, rescale
                what a checkpoint says, and a state with other shards
datasource/     state as rows; reader: the same as a call
compaction      a log as a DataFrame, compacted by a key in a header; kafka_sink/: exactly once to Kafka
header_functions/  functions of columns of headers, for any DataFrame

Imports all layers below; nothing imports it. Start at `shard_call`, then `stateful`.
"""

# Before all that asks Spark for what an older one does not have.
import statestore.spark.spark_versions as _spark_versions  # noqa: F401  # isort: split
from statestore.recovery.commit.figures import (
    DeltaFigures,
    RestoreFigures,
    SizeFigures,
    SnapshotFigures,
    SpillFigures,
    StoreFigures,
    UpgradeFigures,
)
from statestore.recovery.making.rescale_report import RescaleProgress, RescaleReport, StoreReport
from statestore.spark.checkpoint_pointers import committed_options, committed_pointers_option, read_pointers
from statestore.spark.dataframe_middleware import with_middleware
from statestore.spark.dataframe_streams import DataFrameStreams
from statestore.spark.datasource.source import register_data_source
from statestore.spark.datasource.writer import InitialState, write_initial_state
from statestore.spark.each_record import for_each_record
from statestore.spark.figures import BatchFigures, RecordFigures, ShardFigures, TimeFigures, batch_figures
from statestore.spark.from_records import from_records
from statestore.spark.listener import StateStoreListener
from statestore.spark.per_key import HeaderStatefulProcessor, per_key_topology
from statestore.spark.query_failure import QueryFailure, error_of
from statestore.spark.reader import read_store
from statestore.spark.recommended_settings import (
    RecommendedSettings,
    Setting,
    SettingGroup,
    recommended_settings,
)
from statestore.spark.rescale import Rescaled, rescale
from statestore.spark.source_offsets import SourceOffsets, read_source_offsets
from statestore.spark.stateful import stateful
from statestore.spark.to_records import to_records

__all__ = [
    "BatchFigures",
    "DataFrameStreams",
    "DeltaFigures",
    "HeaderStatefulProcessor",
    "InitialState",
    "QueryFailure",
    "RecommendedSettings",
    "RecordFigures",
    "RescaleProgress",
    "RescaleReport",
    "Rescaled",
    "RestoreFigures",
    "Setting",
    "SettingGroup",
    "ShardFigures",
    "SizeFigures",
    "SnapshotFigures",
    "SourceOffsets",
    "SpillFigures",
    "StateStoreListener",
    "StoreFigures",
    "StoreReport",
    "TimeFigures",
    "UpgradeFigures",
    "batch_figures",
    "committed_options",
    "committed_pointers_option",
    "error_of",
    "for_each_record",
    "from_records",
    "per_key_topology",
    "read_pointers",
    "read_source_offsets",
    "read_store",
    "recommended_settings",
    "register_data_source",
    "rescale",
    "stateful",
    "to_records",
    "with_middleware",
    "write_initial_state",
]
