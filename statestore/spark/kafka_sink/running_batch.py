"""What Spark tells of the batch that a foreachBatch is called for: its query, its run, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    _log: str = field(repr=False)
    """Where the checkpoint's log of offsets is."""
    _spark: SparkSession = field(repr=False)

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
        log = f"{run.resolvedCheckpointRoot()}/offsets"
        return cls(query_id, run.runId().toString(), int(batch_id), log, spark)

    def planned(self, batch_id: int) -> str | None:
        """Return the digest of the entry of a batch in the checkpoint's log of offsets, None if it has none.

        Spark writes it before it begins the batch, and a repeated batch has the same. It says what sources are read up
        to, the watermark, and when the batch was planned; the last tells batches apart whose sources count, as files
        do.
        """
        jvm: Any = self._spark.sparkContext._jvm
        entry = jvm.org.apache.hadoop.fs.Path(f"{self._log}/{batch_id}")
        files = entry.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())
        if not files.exists(entry):
            return None
        stream = files.open(entry)
        try:
            return OF_PLAN + sha256(bytes(stream.readAllBytes())).hexdigest()
        finally:
            stream.close()
