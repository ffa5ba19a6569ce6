"""Where Spark places each shard: what `statestore.recovery.routing` has, which tools without Spark need, too."""

from statestore.recovery.routing import routing_numbers, spark_hash

__all__ = ["routing_numbers", "spark_hash"]
