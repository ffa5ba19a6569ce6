"""What differs between the versions of Spark and pandas that are supported, and what stands in for what one lacks.

    4.0     no filters are pushed down to Python data sources; no repartitionById; no functions of columns of Arrow;
            state in checkpoint format 2 can't be read back; Spark Connect has no transformWithState for Python

All else is the same up to Spark 4.3. What nothing can stand in for is refused with SparkVersionError. The import of
this module refuses an older Spark, before anything asks that for what it does not have.

pandas 3 makes columns of text, with NaN for None, of what pandas 2 leaves as the objects that they are.

A client of Spark Connect alone has no bridge to Java, and none of the errors that come over it.
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

CHECKPOINT_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_ARROW_TYPE_ARGUMENTS: Final = signature(to_arrow_type).parameters
_OLDEST: Final = (4, 0)
WITH_ALL: Final = (4, 1)
_INFERRING_PANDAS: Final = (3, 0)


def require(what: str, needed: tuple[int, int]) -> None:
    """Raise SparkVersionError if the Spark that is installed is older than `needed`, which `what` says needs it."""
    if version_of(pyspark.__version__) < needed:
        raise SparkVersionError(what=what, needed="{}.{}".format(*needed), found=pyspark.__version__)


def version_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version of Spark, whatever follows them."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def _errors_of_java() -> tuple[type[Exception], ...]:
    try:
        from py4j.protocol import Py4JJavaError
    except ModuleNotFoundError:
        return ()
    return (Py4JJavaError,)


require("statestore.spark", _OLDEST)
_INFERS_TEXT: Final = version_of(pd.__version__) >= _INFERRING_PANDAS
LACKS_SOME: Final = version_of(pyspark.__version__) < WITH_ALL

SPARK_FAILURES: Final[tuple[type[Exception], ...]] = (PySparkException, *_errors_of_java())
"""What Spark raises when a job fails, or when it is asked for what is not there."""

if TYPE_CHECKING or not LACKS_SOME:
    from pyspark.sql import datasource
    from pyspark.sql.pandas import functions

    filters = datasource
    arrow_udf = functions.arrow_udf
else:
    # Nothing is ever one of these: no filter is handed out.
    _NAMES = (
        "EqualNullSafe EqualTo Filter GreaterThan GreaterThanOrEqual In IsNotNull IsNull LessThan LessThanOrEqual Not"
    )
    filters = SimpleNamespace(**{name: type(name, (), {}) for name in _NAMES.split()})

    def arrow_udf(*_: Any) -> Any:
        """Raise SparkVersionError."""
        require("what reads headers in Python, header_typed() and typed_headers(),", WITH_ALL)


def arrow_type_of(spark_type: DataType) -> pa.DataType:
    """Return Arrow's type of one of Spark's, with times in UTC: Spark 4.1 says that by another argument."""
    in_utc: dict[str, Any] = {"timezone": "UTC"} if "timezone" in _ARROW_TYPE_ARGUMENTS else {"timestamp_utc": True}
    return to_arrow_type(spark_type, **in_utc)


def repartition_by_id(rows: DataFrame, partitions: int, column: str) -> DataFrame:
    """Return `rows` in so many partitions, each row in the one that the whole number in `column` says."""
    if not LACKS_SOME:
        return rows.repartitionById(partitions, column)
    # Numbers that Spark's hash sends to each partition, in order, are what groups of shards are found by as well.
    numbers = f.array(*map(f.lit, routing_numbers(partitions, partitions)))
    return rows.repartition(partitions, numbers[f.col(column)])


def object_column(values: Sequence[Any]) -> Any:
    """Return values as what pandas makes a column of them of, as they are: it would make NaN of None beside texts."""
    array = np.fromiter(values, dtype=object, count=len(values))
    # pandas 2 takes an array as it is, in a third of the time of a Series; pandas 3 looks at each object in it.
    return pd.Series(array, dtype=object) if _INFERS_TEXT else array


def refuse_checkpoint_format(spark: SparkSession) -> None:
    """Raise SparkVersionError if the session is set to a checkpoint format whose state this Spark can't read back."""
    if spark.conf.get(CHECKPOINT_FORMAT, "1") != "1":
        require("reading back state in checkpoint format 2", WITH_ALL)
