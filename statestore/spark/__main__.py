"""`python -m statestore.spark`: what is read from a Spark checkpoint, for tools that have no Spark.

pointers CHECKPOINT [--batch-id N]   the commit pointer of each shard after a batch (the last committed one), one a line
offsets CHECKPOINT [--batch-id N]    where the sources stood then, one a line: that of Kafka is what startingOffsets
                                     takes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from statestore.errors import StateStoreError
from statestore.spark.checkpoints.checkpoint import read_source_offsets, recorded_pointers

_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: it takes half the time."""
_SETTINGS: Final[dict[str, Any]] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 if all is well, 1 if the checkpoint does not have it, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m statestore.spark", description="Look into a Spark checkpoint.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    pointers = commands.add_parser("pointers", help="print the commit pointers after a batch")
    pointers.set_defaults(lines=_pointers)
    offsets = commands.add_parser("offsets", help="print where the sources stood after a batch")
    offsets.set_defaults(lines=_offsets)
    for command in (pointers, offsets):
        command.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
        command.add_argument(
            "--batch-id", type=int, metavar="N", help="a batch that Spark retains (default: the last committed one)"
        )
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _JVM)
    settings = {} if "SPARK_REMOTE" in os.environ else _SETTINGS  # a server of Spark Connect has its own
    spark = SparkSession.builder.appName("statestore").config(map=settings).getOrCreate()
    try:
        for line in chosen.lines(spark, chosen):
            print(line)
    except StateStoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _pointers(spark: SparkSession, chosen: argparse.Namespace) -> list[str]:
    return recorded_pointers(spark, chosen.checkpoint, chosen.batch_id)


def _offsets(spark: SparkSession, chosen: argparse.Namespace) -> list[str]:
    offsets = read_source_offsets(spark, chosen.checkpoint, chosen.batch_id)
    if offsets.uncommitted_batch_id is not None:
        print(f"batch {offsets.uncommitted_batch_id} was not committed: its records come again", file=sys.stderr)
    return [source or "" for source in offsets.sources]


if __name__ == "__main__":
    sys.exit(main())
