"""A query that goes on, and its state in a browser: the page of `upgrade-tools serve`.

Run with `make demo-look`; Ctrl-C ends it. Orders come from files in Kafka's shape, a new one every second.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql.streaming import StreamingQuery

import orders as orders_module
from demo_session import demo_session
from orders import KAFKA_ROWS, running_total_topology, seeded_orders, write_orders
from statestore.spark import stateful

ORDERS_PER_FILE = 40
FILES = 3_600
SHARDS = 4


def main(port: str = "8471") -> int:
    """Run the query, and the page on its state, until Ctrl-C."""
    # Python workers do not know this directory: the processor travels with the query. A package would be installed.
    cloudpickle.register_pickle_by_value(orders_module)
    with tempfile.TemporaryDirectory(prefix="statestore-demo-") as directory, suppress(KeyboardInterrupt):
        home, ended = Path(directory), threading.Event()
        threading.Thread(target=feed, args=(home / "input", ended), daemon=True).start()
        print("Starting Spark ...", flush=True)
        query = start_query(home)
        try:
            while not (home / "state/heads").exists() and query.exception() is None:
                ended.wait(0.2)
            look(home / "state", port)
        finally:
            ended.set()
            query.stop()
    return 0


def feed(directory: Path, ended: threading.Event) -> None:
    """Write a file of orders every second."""
    orders = seeded_orders(ORDERS_PER_FILE * FILES)
    for number in range(FILES):
        first = number * ORDERS_PER_FILE
        write_orders(orders[first : first + ORDERS_PER_FILE], directory / f"orders-{number:05}.parquet")
        if ended.wait(1.0):
            return


def start_query(home: Path) -> StreamingQuery:
    """Return the query, which totals the orders of each customer."""
    (home / "input").mkdir(exist_ok=True)
    spark = demo_session("statestore demo")
    records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(home / "input"))
    totals = stateful(records, running_total_topology(), shards=SHARDS, state_location=home / "state")
    return totals.writeStream.format("noop").option("checkpointLocation", str(home / "checkpoint")).start()


def look(state: Path, port: str) -> None:
    """Serve the state, and open the page, until Ctrl-C."""
    command = [sys.executable, "-m", "upgrade_tools", "serve", str(state), "--port", port, "--value-as", "int64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            address = serving.stdout.readline().strip()
            print(f"{address}  (Ctrl-C ends it)", flush=True)
            if address:
                webbrowser.open(address)
            serving.wait()
        finally:
            serving.terminate()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
