"""The Spark session of demos that read and write Kafka."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from statestore.testing.jars import connector_jars


def demo_session(name: str, cores: int, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on this machine that prints errors only."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config(map=dict(settings))
        .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
