"""The Spark session of demos."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def demo_session(
    name: str, settings: Mapping[str, str] | None = None, *, cores: int = 2, jars: Iterable[Path] = ()
) -> SparkSession:
    """Return a session on this machine that prints errors only."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config(map={"spark.jars": ",".join(map(str, jars)), **(settings or {})})
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
