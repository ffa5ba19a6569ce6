"""The stages of a query: each is an operator of Spark's, with a state of its own in the state location.

A query of one stage has its state in the location itself; one of several has them in `stage-0`, `stage-1` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from statestore.errors import TopologyError
from statestore.interception.chain import Chain
from statestore.processor.stages import stages_of
from statestore.processor.topology import Topology
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import ShardBy, refuse_other_stages, stage_name
from statestore.spark.sessions import on_server
from statestore.spark.shards.lanes import Lanes


class QueryStage(NamedTuple):
    """A stage of a query, with the interceptors around it."""

    number: int
    topology: Topology
    location: DurableLocation
    shards: int
    shard_by: str
    lanes: Lanes | None
    """Which of its records are for which stage; None if it is the only one."""
    is_last: bool
    copied: Mapping[str, str]
    """Its stores of which later stages have copies, with the topics of those."""


def query_stages(
    spark: SparkSession,
    topology: Topology,
    chain: Chain,
    location: DurableLocation,
    shards: int | Mapping[str, int],
    shard_by: str,
    via: str,
) -> tuple[QueryStage, ...]:
    """Return the stages of a query in their order.

    Raises TopologyError for what can't run there: of several stages one through applyInPandasWithState, of which Spark
    allows one a query, and interceptors; TopologyChangedError if the state at the location has another number of them;
    ValueError for shards of other stages.
    """
    stages = stages_of(topology)
    if len(stages) > 1 and via == "apply_in_pandas_with_state":
        raise TopologyError(
            f"topic {min(topology.repartition_topics)!r} makes {len(stages)} stages of the program, and Spark allows "
            'one applyInPandasWithState in a query: use via="transform_with_state"'
        )
    on_server(spark, refuse_other_stages, location, len(stages))
    names = [stage_name(number) for number in range(len(stages))]
    of_stages = dict.fromkeys(names, shards) if isinstance(shards, int) else shards
    if of_stages.keys() != {*names}:
        raise ValueError(f"shards must be a number, or one for each of {', '.join(names)}, not {shards!r}")
    made = []
    for number, stage in enumerate(stages):
        part = stage.topology.with_interceptors(chain)
        by = shard_by if number == 0 else ShardBy.KEY.value
        part.check_sharding(by)
        room, lanes = (location, None) if len(stages) == 1 else (location.below(names[number]), Lanes.of(stage))
        is_last = number == len(stages) - 1
        made.append(QueryStage(number, part, room, of_stages[names[number]], by, lanes, is_last, stage.copied))
    return tuple(made)
