"""Differences between the supported versions of Spark and pandas, and replacements for what a version lacks.

    4.0     no filters are pushed down to Python data sources; no repartitionById; no functions of columns of Arrow;
            state in checkpoint format 2 can't be read back; Spark Connect has no transformWithState for Python

Everything else is the same up to Spark 4.3. What has no replacement raises SparkVersionError. With an older Spark, the
import of this module does, before any other module asks that Spark for what it lacks.

pandas 3 makes text columns, with NaN for None, of texts that pandas 2 keeps as objects.

A client of Spark Connect alone has no bridge to Java, nor the errors that come over it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import signature
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from statestore.errors.run import SparkVersionError
from statestore.recovery.metadata.state_metadata import routing_numbers

_ARROW_TYPE_ARGUMENTS: Final = signature(to_arrow_type).parameters
_OLDEST: Final = (4, 0)
WITH_ALL: Final = (4, 1)


def require(what: str, needed: tuple[int, int]) -> None:
    """Raise SparkVersionError if the installed Spark is older than `needed`; `what` says what needs it."""
    if version_of(pyspark.__version__) < needed:
        raise SparkVersionError(what=what, needed="{}.{}".format(*needed), found=pyspark.__version__)


def version_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version, whatever follows them."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def _errors_of_java() -> tuple[type[Exception], ...]:
    try:
        from py4j.protocol import Py4JJavaError
    except ModuleNotFoundError:
        return ()
    return (Py4JJavaError,)


require("statestore.spark", _OLDEST)
_INFERS_TEXT: Final = version_of(pd.__version__) >= (3, 0)
LACKS_SOME: Final = version_of(pyspark.__version__) < WITH_ALL

SPARK_FAILURES: Final[tuple[type[Exception], ...]] = (PySparkException, *_errors_of_java())
"""What Spark raises when a job fails, or when something that it reads is missing."""

if TYPE_CHECKING or not LACKS_SOME:
    from pyspark.sql import datasource
    from pyspark.sql.pandas import functions

    filters = datasource
    arrow_udf = functions.arrow_udf
else:
    # Placeholders: Spark 4.0 hands out no filters.
    _NAMES = (
        "EqualNullSafe EqualTo Filter GreaterThan GreaterThanOrEqual In IsNotNull IsNull LessThan LessThanOrEqual Not"
    )
    filters = SimpleNamespace(**{name: type(name, (), {}) for name in _NAMES.split()})

    def arrow_udf(*_: Any) -> Any:
        """Raise SparkVersionError."""
        require("what reads headers in Python, header_typed() and typed_headers(),", WITH_ALL)


def arrow_type_of(spark_type: DataType) -> pa.DataType:
    """Return Arrow's type for one of Spark's, with times in UTC; the argument for that has changed with Spark 4.1."""
    in_utc: dict[str, Any] = {"timezone": "UTC"} if "timezone" in _ARROW_TYPE_ARGUMENTS else {"timestamp_utc": True}
    return to_arrow_type(spark_type, **in_utc)


def repartition_by_shard(rows: DataFrame, partitions: int) -> DataFrame:
    """Return `rows` in so many partitions, each row in the partition whose number is in the column `shard`."""
    if not LACKS_SOME:
        return rows.repartitionById(partitions, "shard")
    # As with the group keys of shards: for each partition, a number that Spark's hash sends there.
    numbers = f.array(*map(f.lit, routing_numbers(partitions, partitions)))
    return rows.repartition(partitions, numbers[f.col("shard")])


def object_column(values: Sequence[Any]) -> Any:
    """Return values for a pandas column that keeps them as they are, None included."""
    array = np.fromiter(values, dtype=object, count=len(values))
    # pandas 2 takes an array unchanged, in a third of the time of a Series; pandas 3 would convert its objects.
    return pd.Series(array, dtype=object) if _INFERS_TEXT else array


def refuse_checkpoint_format(spark: SparkSession) -> None:
    """Raise SparkVersionError if the session is set to a checkpoint format whose state this Spark can't read back."""
    if spark.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion", "1") != "1":
        require("reading back state in checkpoint format 2", WITH_ALL)
