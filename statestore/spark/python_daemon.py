"""Spark's daemon of Python workers, which has imported what the workers of a stateful query need.

    JVM ── starts ──> daemon, which imports ── fork ──> worker ── fork ──> worker ...

Spark's own daemon imports nothing, so each worker imports for itself: three quarters of a second of CPU, and memory of
its own. Here workers share the daemon's pages until they write to them. Spark runs this module as a program if
`spark.python.daemon.module` names it, so the package must be installed on each machine, not sent along with the query.
"""

import gc
import sys
from zipimport import zipimporter

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import statestore.spark  # noqa: F401

_OBJECTS_BEFORE_COLLECTING = 100_000


def forget_archives() -> None:
    """Forget the importers of zip archives; Python makes them again when it looks for a module there.

    In each new worker Python looks at its paths again. Spark's Python package is an archive with an importer for each
    package in it, and each importer would read the archive's whole directory: a quarter of a second.
    """
    for path, importer in [*sys.path_importer_cache.items()]:
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    forget_archives()
    # The collector writes to every object that it visits, so each worker would get its own copy of all pages.
    gc.collect()
    gc.freeze()
    # A batch makes objects by the hundred thousand, which live as long as it: up to a quarter of its time would go into
    # looking through them again and again.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)
    manager()
