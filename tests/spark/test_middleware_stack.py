"""A stack of middleware around a query with a real broker, stopped in mid-message: by the demo's own checks."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from middleware_stack import checks, run
from statestore.testing.kafka_broker import KafkaBroker


def test_tracing_signing_compression_slicing_avro_encryption_and_authorisation_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A broker of its own: the demo's topics have the plainest of names.
    with KafkaBroker() as broker:
        outcome = run(spark, broker, tmp_path)
    assert {what: right for what, right in checks(outcome).items() if not right} == {}
