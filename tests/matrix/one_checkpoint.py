"""`python -m tests.matrix.one_checkpoint HOME LEG`: goes on from the checkpoints in HOME, with this Python's Spark.

There is a query for each entry point. Each leg adds orders, runs the queries on where the leg before left them, be that
with another Spark, and compares the whole state with a plain fold. `--second-format` is Spark's checkpoint format 2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import orders as orders_module
from orders import expected_totals, seeded_orders
from tests.support.spark.queries import SECOND_CHECKPOINT_FORMAT, OrderQuery, spark_settings

ENTRY_POINTS = ("transform_with_state", "apply_in_pandas_with_state")
ORDERS_A_LEG = 30


def go_on(spark: SparkSession, home: Path, via: str, leg: int) -> bool:
    """Add the orders of a leg, counted from 0, run the query, and return whether the state is that of all orders."""
    home.mkdir(parents=True, exist_ok=True)
    query = OrderQuery(spark, home, via)
    query._files = leg
    orders = seeded_orders(ORDERS_A_LEG * (leg + 1))
    query.add(orders[-ORDERS_A_LEG:])
    shutil.rmtree(home / "local", ignore_errors=True)  # another Spark goes on on another machine
    query.run()
    return query.totals() == expected_totals(orders) and len(query.outputs) == ORDERS_A_LEG


def main() -> int:
    """Run a leg for each entry point; return 0 if all states are right."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.one_checkpoint")
    parser.add_argument("home", type=Path)
    parser.add_argument("leg", type=int)
    parser.add_argument("--second-format", action="store_true")
    asked = parser.parse_args()
    cloudpickle.register_pickle_by_value(orders_module)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with spark_settings(spark, SECOND_CHECKPOINT_FORMAT) if asked.second_format else nullcontext():
        right = {via: go_on(spark, asked.home / via, via, asked.leg) for via in ENTRY_POINTS}
    spark.stop()
    print(f"Spark {spark.version}, leg {asked.leg}: {right}", flush=True)
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
