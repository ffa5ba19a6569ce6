"""Functions of columns of headers beside plain Python UDFs that do the same, in one run.

`python benchmarks/header_functions.py` (part of `make bench`; `--rows 200000 --rounds 3`). Rows with 4 headers, cached
in memory; Spark works on one core and writes to nothing. Engine and UDF take turns, and the best round counts. What it
takes to read the cache, which both do, is in all figures. `header_typed` runs in Python too, over batches of Arrow.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from statestore.connect import STRICT, SimpleHeaderConverter
from statestore.spark import header_functions as hf
from turns import best, seconds

RESULTS = Path(__file__).parent / "results" / "header_functions.json"
HEADERS = "array<struct<key:string,value:binary>>"
ENGINE_TO_UDF = 10
"""How many times faster the engine is to be; nothing is asked of Arrow."""
IN_ARROW = ("header_typed",)


@dataclass(frozen=True)
class Case:
    """What is done with headers: in the engine, and by a function of a row as one writes it without statestore."""

    engine: Callable[..., Column]
    arguments: tuple[Any, ...]
    returned: str
    function: Callable[[Any], Any]

    @property
    def name(self) -> str:
        return self.engine.__name__

    def forms(self) -> dict[str, Column]:
        """Return its columns; they can only be made when there is a session."""
        udf = F.udf(self.function, self.returned)
        return {"engine": self.engine("headers", *self.arguments), "udf": udf("headers")}


def attempt(headers: Any) -> int | None:
    for header in reversed(headers or ()):
        if header.key == "attempt":
            return None if header.value is None else int(header.value.decode())
    return None


def trace_id(headers: Any) -> bytes | None:
    for header in reversed(headers or ()):
        if header.key == "trace-id":
            return header.value
    return None


def without_tenant(headers: Any) -> Any:
    return None if headers is None else [header for header in headers if header.key != "tenant"]


def with_seen(headers: Any) -> Any:
    return [*(headers or ()), ("seen", b"true")]


def latest(headers: Any) -> Any:
    if headers is None:
        return None
    kept: dict[str, Any] = {}
    for header in reversed(headers):
        kept.setdefault(header.key, header)
    return list(kept.values())[::-1]


def as_map(headers: Any) -> dict[str, Any]:
    return {header.key: header.value for header in headers or ()}


def price(headers: Any) -> Decimal | None:
    for header in reversed(headers or ()):
        if header.key == "price":
            found = SimpleHeaderConverter().to_connect_header("", "price", header.value)
            return None if found is None else STRICT.convert_to_decimal(found.schema, found.value, 2)
    return None


CASES = (
    Case(hf.header_last, ("trace-id",), "binary", trace_id),
    Case(hf.header_int, ("attempt",), "int", attempt),
    Case(hf.with_header, ("seen", True), HEADERS, with_seen),
    Case(hf.drop_headers, ("tenant",), HEADERS, without_tenant),
    Case(hf.retain_latest, (), HEADERS, latest),
    Case(hf.headers_to_map, (), "map<string,binary>", as_map),
    Case(hf.header_typed, ("price", "decimal(38,2)"), "decimal(38,2)", price),
)


def input_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows with 4 headers of up to 20 bytes, cached."""
    values = {
        "trace-id": "lpad(id, 20, '0')",
        "tenant": "'tenant-0123456789'",
        "attempt": "id % 10",
        "price": "concat(id % 1000, '.55')",
    }
    headers = [
        F.struct(F.lit(key).alias("key"), F.expr(value).cast("string").cast("binary").alias("value"))
        for key, value in values.items()
    ]
    made = spark.range(rows, numPartitions=1).select(F.array(*headers).alias("headers")).cache()
    made.count()
    return made


def row_us(records: DataFrame, column: Column, rows: int) -> float:
    """Return microseconds a row of wall clock."""
    write = records.select(column.alias("result")).write.format("noop").mode("overwrite").save
    return seconds(write, time.perf_counter) / rows * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    records = input_rows(spark, given.rows)
    runs = {}
    for case in CASES:
        for form, column in case.forms().items():
            runs[f"{case.name} {form}"] = partial(row_us, records, column, given.rows)
    figures = best(runs, given.rounds)
    spark.stop()
    print(f"{given.rows} rows with 4 headers, best of {given.rounds}, us a row")
    for case in CASES:
        engine, udf = figures[f"{case.name} engine"], figures[f"{case.name} udf"]
        is_arrow = case.name in IN_ARROW
        verdict = f"  below {ENGINE_TO_UDF}" if udf / engine < ENGINE_TO_UDF and not is_arrow else ""
        form = "Arrow" if is_arrow else "engine"
        print(f"  {case.name:16} {form:6} {engine:6.2f}  udf {udf:6.2f}  {udf / engine:6.1f} times as fast{verdict}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
