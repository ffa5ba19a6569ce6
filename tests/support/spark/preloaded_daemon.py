"""pyspark's daemon of Python workers, with what they need already there: each worker is a fork of it.

Tests end many workers. Without it, each new one would cost a second or two of imports again. Spark runs this as a
program: `spark.python.daemon.module`.
"""

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import statestore.spark  # noqa: F401

if __name__ == "__main__":
    manager()
