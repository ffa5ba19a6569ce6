"""What Spark tells of the batch that a foreachBatch is called for: its query, its run, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import SparkSession

from statestore.spark.kafka_sink.markers import OF_PLAN

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class RunningBatch:
    """A batch that is run by a query of a classic session."""

    query_id: str
    run_id: str
    batch_id: int
    digest: str
    """Of the entry that Spark has put into the checkpoint's log of offsets before it began the batch.

    A repeated batch has the same entry. It has what sources are read up to, the watermark, and when the batch was
    planned; the last tells batches apart whose sources count, as files do.
    """

    @classmethod
    def of(cls, spark: SparkSession) -> RunningBatch | None:
        """Return the batch that this thread is called for; None if it is called for none. Needs a classic session."""
        context: Any = spark.sparkContext
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            return None
        # Spark has no public way from the session of a batch to its run. All sessions share what runs.
        runs = spark._jsparkSession.sharedState().activeStreamingQueries()
        run = runs.get(context._jvm.java.util.UUID.fromString(query_id))
        if run is None:
            return None
        entry = _read(spark, f"{run.resolvedCheckpointRoot()}/offsets/{batch_id}")
        return cls(query_id, run.runId().toString(), int(batch_id), OF_PLAN + sha256(entry).hexdigest())


def _read(spark: SparkSession, path: str) -> bytes:
    """Return what a file holds, on whatever filesystem Spark reaches."""
    jvm: Any = spark.sparkContext._jvm
    file = jvm.org.apache.hadoop.fs.Path(path)
    stream = file.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).open(file)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()
