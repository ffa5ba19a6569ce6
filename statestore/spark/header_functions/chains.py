"""A connector's transformations on DataFrames, as functions of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from statestore.connect.converters.base import STRICT_MODE, HeaderConverter
from statestore.connect.converters.registry import HEADER_CONVERTER
from statestore.connect.transforms.chain import ColumnChain
from statestore.connect.transforms.connector_config import connector_properties
from statestore.connect.transforms.header_steps import (
    DropHeaders,
    Filter,
    HasHeaderKey,
    InsertHeader,
    RecordIsTombstone,
)
from statestore.connect.transforms.topic_steps import TopicNameMatches
from statestore.connect.transforms.transformation import Step
from statestore.spark.header_functions.lookups import drop_headers, has_header, with_header
from statestore.spark.query_settings import session_header_converter


def transform_records(records: DataFrame, config: str | Mapping[str, Any], *, mode: str = STRICT_MODE) -> DataFrame:
    """Return records as the transformations of a connector's configuration leave them, without those that they drop.

    They run in Spark's engine, so they may look only at headers, topics and tombstones: InsertHeader, DropHeaders and
    Filter, with HasHeaderKey, RecordIsTombstone and TopicNameMatches. To move fields of keys and values use
    `with_header` and `header_typed`, or in a query a ConnectIngest.

    Args:
        records: has a column `headers`, and `topic` and `value` if a predicate looks at them; others stay as they are.
        config: a mapping, the text of a file of Java's properties, or JSON. Its `header.converter`, or else the
            session's, writes inserted values, for no topic.
        mode: for converters and steps that are not told one: "strict", or "compat" to do everything as Kafka does.

    Raises ConfigException for a wrong configuration, and ValueError for any other step.
    """
    chain = ColumnChain.from_properties(config, mode=mode)
    if not all(_is_in_spark(step) for step in chain.chain.steps):
        raise ValueError(f"Spark's engine does not have all of these steps: {chain.chain.describe()}")
    is_named = HEADER_CONVERTER in connector_properties(config)
    of_session = None if is_named else session_header_converter(records.sparkSession)
    for step in chain.chain.steps:
        records = _transformed(records, step, of_session or chain.converter)
    return records


def _is_in_spark(step: Step) -> bool:
    predicate = step.predicate
    return type(step.transformation) in (InsertHeader, DropHeaders, Filter) and (
        predicate is None or type(predicate) in (HasHeaderKey, RecordIsTombstone, TopicNameMatches)
    )


def _transformed(records: DataFrame, step: Step, converter: HeaderConverter) -> DataFrame:
    chosen = None if step.predicate is None else _is_true(step.predicate)
    if chosen is not None and step.negate:
        chosen = ~chosen
    transformation: Any = step.transformation
    if isinstance(transformation, InsertHeader):
        literal = transformation.literal
        value = converter.from_connect_header("", transformation.header, literal.schema, literal.value)
        changed = with_header("headers", transformation.header, value)
    elif isinstance(transformation, DropHeaders):
        changed = drop_headers("headers", *transformation.headers)
    else:
        return records.where(F.lit(False) if chosen is None else ~chosen)
    return records.withColumn(
        "headers", changed if chosen is None else F.when(chosen, changed).otherwise(F.col("headers"))
    )


def _is_true(predicate: Any) -> Column:
    """Return whether a predicate holds for a row; never null."""
    if isinstance(predicate, HasHeaderKey):
        return F.lit(False) if predicate.name is None else has_header("headers", predicate.name)
    if isinstance(predicate, RecordIsTombstone):
        return F.col("value").isNull()
    assert isinstance(predicate, TopicNameMatches), predicate
    return F.coalesce(F.col("topic").rlike(rf"^(?:{predicate.pattern})\z"), F.lit(False))
