"""Spark's Python daemon, with what the soak's workers import already there.

Workers are forks of it. Without it, each worker that a fault has ended would cost a second or two of imports again.
Spark runs this as a program: `spark.python.daemon.module`.
"""

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import soak_query  # noqa: F401

if __name__ == "__main__":
    manager()
