"""The pages of the documentation that run on Spark: all of their code, or the topology that a function makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import Int64Value
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from statestore import Serdes
from statestore.spark import stateful
from tests.support.documentation import PAGES, ROOT, blocks_of, needs_spark, run_page
from tests.support.spark.queries import KAFKA_ROWS, run_to_the_end

COOKBOOK = ROOT / "docs" / "cookbook"
MINUTE_MS = 60_000
INT64, JSON = Serdes.int64().serialize, Serdes.json().serialize
InputRow = tuple[str, bytes, bytes, int, list[tuple[str, bytes]]]
"""Topic, key, value, timestamp and headers."""


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_on_spark(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    on_spark = [block for block in blocks_of(page) if block.needs_spark]
    checks = re.compile(r"assert |print\(|\.show\(")
    assert any(checks.search(block.text) for block in on_spark), "a page that checks nothing"
    defined = vars(run_page(page, with_spark=True))
    assert all(name in defined for block in on_spark for name in re.findall(r"^(\w+) = ", block.text, re.M))


@pytest.fixture
def results(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    """Run a page's topology over one micro-batch, and return what it put out, by timestamp."""
    monkeypatch.chdir(tmp_path)

    def run(page: str, function: str, rows: Sequence[InputRow]) -> list[Row]:
        topology: Any = getattr(run_page(COOKBOOK / page, with_spark=False), function)()
        written = spark.createDataFrame(
            [
                (key, value, topic, 0, n, time_ms, headers)
                for n, (topic, key, value, time_ms, headers) in enumerate(rows)
            ],
            KAFKA_ROWS.replace("timestamp timestamp", "timestamp bigint"),
        ).withColumn("timestamp", f.timestamp_millis("timestamp"))
        written.coalesce(1).write.parquet(f"{tmp_path}/in")
        records = spark.readStream.schema(written.schema).parquet(f"{tmp_path}/in")
        found: list[Row] = []
        writer = stateful(records, topology, shards=2, state_location=tmp_path / "state").writeStream
        writer = writer.foreachBatch(lambda batch, _: found.extend(batch.orderBy("timestamp").collect()))
        run_to_the_end(writer, tmp_path / "checkpoint")
        return found

    return run


def told(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(Serdes.json().deserialize(bytes(row.value)), *(tuple(header) for header in row.headers)) for row in rows]


@pytest.mark.slow
def test_sessions_merge(results: Callable[..., list[Row]]) -> None:
    clicks = [("home", 0), ("help", 100_000), ("search", 50_000)]
    rows = [("clicks", b"ada", b"", time_ms, [("page", page.encode())]) for page, time_ms in clicks]
    assert told(results("session-merge.md", "sessions", rows)) == [
        ({"start": 0, "end": 0, "clicks": 1, "merged": 0}, ("page", b"home")),
        ({"start": 0, "end": 100_000, "clicks": 3, "merged": 2}, ("page", b"help")),
        ({"start": 100_000, "end": 100_000, "clicks": 1, "merged": 0}, ("page", b"help")),
    ]


@pytest.mark.slow
def test_a_temporal_lookup_finds_the_prices_of_its_own_batch(results: Callable[..., list[Row]]) -> None:
    rows = [
        ("orders", b"tea", JSON({"pieces": 2}), 1_500, [("trace", b"a1")]),
        ("orders", b"tea", JSON({"pieces": 2}), 500, []),
        ("prices", b"tea", INT64(5), 1_000, [("set-by", b"kim")]),
    ]
    assert told(results("temporal-lookup.md", "charging", rows)) == [
        ({"problem": "no price then"},),
        ({"pay": 10, "since": 1_000}, ("trace", b"a1"), ("price-set-by", b"kim")),
    ]


@pytest.mark.slow
def test_the_largest_order_is_kept_in_protobuf(results: Callable[..., list[Row]]) -> None:
    rows = [("orders", b"ada", Int64Value(value=n).SerializeToString(), n, []) for n in (5, 8, 3)]
    found = results("../middleware/polyglot.md", "largest", rows)
    assert [Int64Value.FromString(bytes(row.value)).value for row in found] == [5, 8, 8]
    assert {tuple(header) for row in found for header in row.headers} == {("content-type", b"application/x-protobuf")}


@pytest.mark.slow
def test_carts_get_a_batchs_rows_together(results: Callable[..., list[Row]]) -> None:
    added = [("ada", "tea", 5, 0), ("ada", "cup", 9, 4), ("ben", "tea", 5, 15)]
    rows = [
        ("added", key.encode(), JSON({"item": item, "price": price}), minute * MINUTE_MS, [("n", b"%d" % minute)])
        for key, item, price, minute in added
    ]
    # One shard has both keys, so that ben's record lets the time of ada's cart run out.
    assert told(results("per-key-pandas.md", "carts", rows)) == [
        ({"total": 14, "notes": ["2 at 00:04"]}, ("n", b"4")),
        ({"given up": 14, "items": {"cup": 1, "tea": 1}}, ("n", b"4")),
        ({"total": 5, "notes": ["1 at 00:15"]}, ("n", b"15")),
    ]
