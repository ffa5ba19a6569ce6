"""`python -m statestore.spark`: what is read from a Spark checkpoint, for tools that have no Spark.

pointers CHECKPOINT        the commit pointer of each shard in the last committed batch, one a line
offsets CHECKPOINT         where the sources stood then, one a line: that of Kafka is what startingOffsets takes
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from statestore.errors import StateStoreError
from statestore.spark.reader import read_pointers
from statestore.spark.source_offsets import read_source_offsets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 if all is well, 1 if the checkpoint does not have it, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m statestore.spark", description="Look into a Spark checkpoint.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    pointers = commands.add_parser("pointers", help="print the commit pointers of the last committed batch")
    pointers.set_defaults(lines=_pointers)
    offsets = commands.add_parser("offsets", help="print where the sources stood in the last committed batch")
    offsets.set_defaults(lines=_offsets)
    for command in (pointers, offsets):
        command.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    chosen = parser.parse_args(arguments)
    spark = SparkSession.builder.appName("statestore").config("spark.ui.enabled", "false").getOrCreate()
    try:
        for line in chosen.lines(spark, chosen.checkpoint):
            print(line)
    except StateStoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _pointers(spark: SparkSession, checkpoint: str) -> list[str]:
    return [row.pointer for row in read_pointers(spark, checkpoint).collect()]


def _offsets(spark: SparkSession, checkpoint: str) -> list[str]:
    offsets = read_source_offsets(spark, checkpoint)
    if offsets.uncommitted_batch_id is not None:
        print(f"batch {offsets.uncommitted_batch_id} was not committed: its records come again", file=sys.stderr)
    return [source or "" for source in offsets.sources]


if __name__ == "__main__":
    sys.exit(main())
