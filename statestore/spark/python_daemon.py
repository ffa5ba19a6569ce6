"""Spark's daemon of Python workers, with what the workers of a stateful query import already in it.

    JVM ── starts ──> daemon, which imports ── fork ──> worker ── fork ──> worker ...

Spark's own daemon imports nothing, so each worker imports by itself: three quarters of a second of CPU, and memory that
it shares with none. Here all have the pages of the daemon until they write to them. Spark runs this as a program if
`spark.python.daemon.module` names it: on each machine the package has to be installed, not sent along with the query.
"""

import gc

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import statestore.spark  # noqa: F401

if __name__ == "__main__":
    # The collector writes to every object that it looks at, and each worker would get its own copy of all pages.
    gc.collect()
    gc.freeze()
    manager()
