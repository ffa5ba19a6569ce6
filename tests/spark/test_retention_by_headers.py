"""Retention by headers in Spark: a DataFrame is compacted as records are, and state that is made of rows expires."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statestore import ConsumerRecord, Serdes, Stores
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.middleware.lifetime.compaction import COMPACTION_HEADER, compacted
from statestore.spark import register_data_source, write_initial_state
from statestore.spark.dataframes.compaction import compacted_rows

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "headers array<struct<key:string,value:binary>>, more string"
)
NOW_MS = 1_700_000_000_000
EXPIRIES = [
    *(expiry_value(NOW_MS + step) for step in (-1, 0, 1)),
    *(str(NOW_MS + step).encode() for step in (-1, 0, 1)),
    *(str(NOW_MS).encode() + behind for behind in (b"\n", b"\r\n", b" ")),
    *(None, b"", b"no time", b"\xff" * 8, b"12345678", b"1" * 20, str(2**63).encode(), b"1.5", "١٢٣".encode()),
]


@pytest.mark.parametrize(("ansi", "options"), [("true", {}), ("false", {"keep_tombstones": True})])
def test_b16_a_data_frame_is_compacted_as_records_are(spark: SparkSession, ansi: str, options: dict[str, Any]) -> None:
    drawn = random.Random(7)
    rows = []
    for offset in range(300):
        headers = [(EXPIRY_HEADER, drawn.choice(EXPIRIES))] if drawn.random() < 0.7 else []
        if drawn.random() < 0.5:
            headers.append((COMPACTION_HEADER, drawn.choice([None, *(b"%d" % number for number in range(40))])))
        key = drawn.choice([None, *(b"%d" % number for number in range(60))])
        value = None if drawn.random() < 0.2 else b"%d" % offset
        topic, partition = drawn.choice(["t", "u"]), drawn.choice([0, 1])
        rows.append((key, value, topic, partition, offset, headers or None, "more"))
    logs = defaultdict(list)
    for key, value, topic, partition, offset, headers, _ in rows:
        logs[topic, partition].append(
            ConsumerRecord(topic, partition, offset, key=key, value=value, headers=headers or ())
        )
    wanted = {left.offset for log in logs.values() for left in compacted(log, now_ms=NOW_MS, **options)}
    drawn.shuffle(rows)
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        records = spark.createDataFrame(rows, SCHEMA)
        left = compacted_rows(records, now_ms=NOW_MS, **options)
        assert left.schema == records.schema
        found = [row.offset for row in left.collect()]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_b16_a_stream_has_no_last_records(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="a streaming DataFrame has no last records"):
        compacted_rows(spark.readStream.format("rate").load(), now_ms=0)


def test_b16_state_that_is_made_of_rows_expires_by_their_headers(spark: SparkSession, tmp_path: Path) -> None:
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    store = Stores.timestamped_key_value_store_with_headers_builder(supplier, Serdes.bytes(), Serdes.bytes())
    expire = {b"a": expiry_value(100), b"b": b"200", b"c": b"no time", b"d": None}
    columns = "key binary, value binary, timestamp_ms bigint, headers array<struct<key:string,value:binary>>"
    rows = spark.createDataFrame([(key, b"v", 5, [(EXPIRY_HEADER, value)]) for key, value in expire.items()], columns)
    made = write_initial_state(rows, tmp_path / "state", stores=[store.with_expiry_header()], shards=2)
    assert made.entries == {"s": 4, "s-expiry": 4}
    register_data_source(spark)
    read = spark.read.format("headerstate").option("store", "s")
    for live_at_ms, keys in ((99, [b"a", b"b", b"c", b"d"]), (100, [b"b", b"c", b"d"]), (200, [b"c", b"d"])):
        found = read.option("liveAtMs", live_at_ms).load(str(tmp_path / "state")).collect()
        assert sorted(bytes(row.key) for row in found) == keys
