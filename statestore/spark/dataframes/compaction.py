"""Compaction by a key in a header, of a DataFrame of Kafka's shape: `middleware.lifetime.compaction` in Spark."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from statestore.headers.expiry_header import EXPIRY_HEADER
from statestore.middleware.lifetime.compaction import COMPACTION_HEADER
from statestore.spark.header_functions import header_last

__all__ = ["compacted_rows"]


def compacted_rows(
    records: DataFrame,
    *,
    now_ms: int,
    header: str = COMPACTION_HEADER,
    expiry_header: str | None = EXPIRY_HEADER,
    keep_tombstones: bool = False,
) -> DataFrame:
    """Return what compaction leaves of each partition of each topic, in no order; the columns stay as they are.

    Like `middleware.lifetime.compaction.compacted`: the last record by `offset` counts. One aggregation by topic,
    partition and key, without a window or a sort. Raises ValueError for a streaming DataFrame: it has no last record.
    """
    if records.isStreaming:
        raise ValueError("a streaming DataFrame has no last records: read the topics as a batch, with spark.read")
    place = F.coalesce(header_last("headers", header), "key")
    # Each record without any key is a group of its own.
    grouped = records.groupBy("topic", "partition", place, F.when(place.isNull(), F.col("offset")))
    whole = F.struct(*[F.col(name) for name in records.columns])
    left = grouped.agg(F.max_by(whole, "offset").alias("last")).select("last.*")
    if not keep_tombstones:
        left = left.where(F.col("value").isNotNull())
    if expiry_header is not None:
        left = left.where(F.coalesce(_expiry_ms(header_last("headers", expiry_header)) > now_ms, F.lit(True)))
    return left


def _expiry_ms(value: Column) -> Column:
    """Return what `expiry_time` reads in a header's value; null if it is malformed."""
    text = value.cast("string")
    number = F.conv(F.hex(value), 16, 10).try_cast("bigint")
    is_text = text.rlike(r"^[0-9]{1,19}\z") & (F.octet_length(value) == F.length(text))
    return F.when(is_text, text.try_cast("bigint")).when(F.octet_length(value) == 8, number)
