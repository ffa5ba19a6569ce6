"""`python -m tests.matrix.one_checkpoint HOME LEG`: goes on from the checkpoints in HOME, with what this Python has.

There is a query for each entry point. Each leg adds orders, one batch for each leg that is not committed, runs the
queries on where the leg before left them, be that with another Spark or another release, and compares the whole state
with a plain fold. `--second-format` is Spark's checkpoint format 2. With `--killed`, all ends in the last query's last
batch, when its state was written and Spark has not committed it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import orders as orders_module
import statestore
from orders import expected_totals, seeded_orders
from tests.support.spark.queries import SECOND_CHECKPOINT_FORMAT, OrderQuery, run_to_the_end, spark_settings

ENTRY_POINTS = ("apply_in_pandas_with_state", "transform_with_state")
ORDERS_A_LEG = 30


class KilledQuery(OrderQuery):
    """A query that a process does not survive: it dies with all that it started in the last batch that there is."""

    def collect(self, rows: DataFrame, checkpoint: str = "checkpoint", *, output_mode: str = "append") -> None:
        """Run the query until its last batch has put out its rows."""

        def take(batch: DataFrame, number: int) -> None:
            batch.collect()
            if number == self._files - 1:
                os.killpg(0, signal.SIGKILL)

        run_to_the_end(rows.writeStream.foreachBatch(take), self.home / checkpoint)


def go_on(query: OrderQuery, leg: int) -> bool:
    """Add the orders up to a leg, counted from 0, run the query, and return whether the state is that of all orders."""
    orders = seeded_orders(ORDERS_A_LEG * (leg + 1))
    committed = len(list(query.home.glob("checkpoint/commits/[0-9]*")))
    query._files = committed
    new = range(ORDERS_A_LEG * committed, len(orders), ORDERS_A_LEG)
    query.add(*(orders[start : start + ORDERS_A_LEG] for start in new))
    query.run()
    return query.totals() == expected_totals(orders) and len(query.outputs) == ORDERS_A_LEG * len(new)


def main() -> int:
    """Run a leg for each entry point; return 0 if all states are right."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.one_checkpoint")
    parser.add_argument("home", type=Path)
    parser.add_argument("leg", type=int)
    parser.add_argument("--second-format", action="store_true")
    parser.add_argument("--killed", action="store_true")
    asked = parser.parse_args()
    print(f"statestore of {Path(statestore.__file__).parents[1]}", flush=True)
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
        right = {}
        for via in ENTRY_POINTS:
            is_last = asked.killed and via == ENTRY_POINTS[-1]
            query = (KilledQuery if is_last else OrderQuery)(spark, asked.home / via, via)
            right[via] = go_on(query, asked.leg)
    spark.stop()
    print(f"Spark {spark.version}, leg {asked.leg}: {right}", flush=True)
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
