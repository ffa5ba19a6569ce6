"""Ways to break stages, one bug of theirs among them: `python -m tests.simulation.mutations --of stages`."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutations import Mutation

STAGE_MUTATIONS: Final = (
    Mutation(
        "offsets are those of the attempt",
        "spark.shards.shard_call",
        "ShardCall.run",
        "Placing(shard, batch_id)",
        "Placing(shard, batch_id + __import__('uuid').uuid4().int % 100)",
    ),
    Mutation(
        "offsets rise with the version of the state",
        "spark.shards.shard_call",
        "ShardCall.run",
        "Placing(shard, batch_id)",
        "Placing(shard, pointer.version + 1)",
    ),
    Mutation(
        "copies hear nothing",
        "spark.shards.shard_call",
        "ShardCall._copying",
        "if store in self.copied:",
        "if False:",
    ),
    Mutation(
        "copies come in order of time",
        "spark.shards.shard_call",
        "ShardCall._topics_first",
        "(*self.topology.global_stores.values(), *self.topology.copied_stores.values())",
        "self.topology.global_stores.values()",
    ),
    Mutation(
        "lanes end at a stage",
        "spark.shards.shard_call",
        "ShardCall.run",
        "                    yield blob\n",
        "                    pass\n",
    ),
    Mutation(
        "what is for two stages on is lost at the next one",
        "spark.shards.lanes",
        "Lanes.of_passed",
        "LATER: is_later & ~is_out",
        "LATER: is_out & ~is_out",
    ),
    Mutation(
        "topics of later stages are for the first one",
        "spark.shards.lanes",
        "Lanes.of_input",
        "if not self.later:",
        "if True:",
    ),
    Mutation(
        "equal times come as they are fetched",
        "spark.shards.record_order",
        "batches_in_order",
        "sorted(places)",
        "list(places)",
    ),
    Mutation(
        "the first stage is recorded first",
        "metadata.state_metadata",
        "agree_on_states",
        "in reversed(asked)\n    ]\n    return agreed[::-1]",
        "in asked\n    ]\n    return agreed",
    ),
    Mutation(
        "where subscriptions have their keys is not known",
        "making.placement",
        "record_keys",
        "if key_of_entry is not None:",
        "if False:",
    ),
    Mutation(
        "of two attempts that counted any one is published",
        "heads.publishing",
        "HeadPublisher._after",
        "len(texts) == 1",
        "True",
    ),
)
