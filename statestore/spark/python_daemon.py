"""Spark's daemon of Python workers, with what the workers of a stateful query import already in it.

    JVM ── starts ──> daemon, which imports ── fork ──> worker ── fork ──> worker ...

Spark's own daemon imports nothing, so each worker imports by itself: three quarters of a second of CPU, and memory that
it shares with none. Here all have the pages of the daemon until they write to them. Spark runs this as a program if
`spark.python.daemon.module` names it: on each machine the package has to be installed, not sent along with the query.
"""

import gc
import sys
from zipimport import zipimporter

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import statestore.spark  # noqa: F401


def forget_archives() -> None:
    """Forget the importers of zip archives; Python makes them anew when it looks for a module there.

    Each new worker has Python look at its paths again. Spark's Python package is an archive, with an importer for each
    package in it, and each of them would read the whole archive's directory: a quarter of a second.
    """
    for path, importer in [*sys.path_importer_cache.items()]:
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    forget_archives()
    # The collector writes to every object that it looks at, and each worker would get its own copy of all pages.
    gc.collect()
    gc.freeze()
    manager()
