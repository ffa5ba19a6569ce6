"""State read, rescaled and made through Spark Connect, by a client that shares no directory with the server.

What runs in the client are the functions that take a session; they are called there, and their results come back.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.clusters.connect import THEIRS, ClientFailure, ConnectClient, ConnectServer


def where_it_runs(spark: SparkSession) -> dict[str, Any]:
    spark.range(3).write.parquet(str(THEIRS / "numbers"))
    there = {name for name in os.environ if name.startswith("AWS_")}
    return {
        "numbers": spark.read.parquet(str(THEIRS / "numbers")).count(),
        "session": type(spark).__module__,
        "keys": there,
        "temporary": tempfile.gettempdir(),
    }


def rows_at(spark: SparkSession, path: str) -> list[Any]:
    return spark.read.parquet(path).collect()


def make_a_file(spark: SparkSession) -> None:
    Path("left").touch()


def test_client_and_server_share_no_directory(connect_server: ConnectServer, connect_client: ConnectClient) -> None:
    found = connect_client.call(where_it_runs)
    assert found == {
        "numbers": 3,
        "session": "pyspark.sql.connect.session",
        "keys": set(),
        "temporary": str(connect_client.home),
    }
    assert (connect_server.home / "numbers").is_dir()
    with pytest.raises(AssertionError, match=r"the client has made \['left'\]"):
        connect_client.call(make_a_file)
    (connect_client.home / "left").unlink()
    with pytest.raises(ClientFailure, match="PATH_NOT_FOUND"):
        connect_client.call(rows_at, str(THEIRS / "nothing"))
