"""Which part of a topology runs in which stage, and what becomes of records on their way through the stages."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import Processor, Record, Serdes, Stores, Topology
from statestore.dsl import BufferConfig, KTable, Materialized, StreamsBuilder, Suppressed, TimeWindows
from statestore.dsl.windowed_serdes import time_windowed_serde
from statestore.errors import TopologyError
from statestore.processor.stages import stages_of

BYTES, TEXT = Serdes.bytes(), Serdes.string()
SERDES: Any = {"key_serde": BYTES, "value_serde": BYTES}


class Passing(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def read(topology: Topology, source: str, topic: str, node: str) -> None:
    topology.add_source(source, topic, **SERDES).add_processor(node, Passing, [source])


def divided(topology: Topology, topic: str, parent: str, node: str) -> None:
    topology.add_repartition(topic, f"to-{topic}", f"from-{topic}", [parent], **SERDES)
    topology.add_processor(node, Passing, [f"from-{topic}"])


def test_a_sub_topology_is_behind_all_that_it_reads_from() -> None:
    """Two topics, of which one goes through two repartition topics, meet in a store that a third one fills."""
    made = Topology()
    read(made, "left", "in-left", "a")
    divided(made, "once", "a", "b")
    divided(made, "again", "b", "c")
    read(made, "right", "in-right", "d")
    divided(made, "other", "d", "e")
    read(made, "names", "in-names", "f")
    store = Stores.key_value_store_builder(Stores.persistent_key_value_store("met"), BYTES, BYTES)
    made.add_state_store(store, "c", "e", "f").add_sink("out", "out", ["e"]).add_sink("seen", "in-names", ["b"])
    stages = stages_of(made)
    assert [[*stage.topology.nodes] for stage in stages] == [
        ["left", "a", "to-once", "right", "d", "to-other"],
        ["from-once", "b", "to-again", "seen"],
        ["from-again", "c", "from-other", "e", "names", "f", "out"],
    ]
    assert [stage.reads for stage in stages] == [
        {"in-left", "in-right"},
        {"once"},
        {"again", "other", "in-names"},
    ]
    assert [stage.later for stage in stages] == [
        {"once", "again", "other", "in-names"},
        {"again", "other", "in-names"},
        set(),
    ]
    assert [[*stage.topology.store_builders] for stage in stages] == [[], [], ["met"]]


def test_a_program_that_keeps_its_keys_has_one_stage() -> None:
    made = Topology()
    read(made, "any", "in", "a")
    (stage,) = stages_of(made)
    assert (stage.topology.nodes, stage.later) == (made.nodes, set())


def test_what_leads_back_to_a_store_before_it_is_refused_with_the_way_out() -> None:
    def program(*, divides_both: bool) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
        counted = (stream.repartition(name="same") if divides_both else stream).group_by_key().count()
        other = stream.select_key(lambda _, value: value, key_serde=TEXT)
        other.join(counted, lambda left, right: f"{left} {right}", value_serde=TEXT, name="met").to("out")
        return builder.build()

    with pytest.raises(TopologyError, match=r"topic 'met-repartition' would come back.*call repartition\(\)"):
        stages_of(program(divides_both=False))
    assert len(stages_of(program(divides_both=True))) == 2


def test_a_stage_has_a_copy_of_a_store_that_it_only_reads() -> None:
    builder = StreamsBuilder()
    left, right = (builder.table(topic, key_serde=TEXT, value_serde=TEXT) for topic in ("left", "right"))
    kept = left.filter(lambda key, value: value != "")
    kept.join(right, lambda *both: "&".join(both), foreign_key=lambda value: value, value_serde=TEXT, name="met")
    store, topic = "left-STATE-STORE-0000000000", "copy of left-STATE-STORE-0000000000"
    stages = stages_of(builder.build())
    assert [stage.copied for stage in stages] == [{store: topic}, {}, {}]
    assert [stage.topology.copied_stores for stage in stages] == [{}, {}, {store: topic}]
    assert [topic in stage.later for stage in stages] == [True, True, False]
    assert all(topic in stage.topology.repartition_topics for stage in stages)
    assert stages[2].reads == {"met-subscription-response-topic", topic}
    assert [store in stage.topology.store_builders for stage in stages] == [True, False, True]


@pytest.mark.parametrize("wrong", ["windowed", "suppressed"])
def test_what_has_no_table_with_plain_keys_can_not_be_copied(wrong: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", key_serde=TEXT, value_serde=TEXT)
    if wrong == "windowed":
        grouped = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5))
        left = grouped.count(materialized=Materialized(key_serde=TEXT))
        left = KTable(left._stage._replace(key_serde=time_windowed_serde(TEXT, 5)), left._plan)
    else:
        left = stream.to_table().suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))
    right = builder.table("right", key_serde=TEXT, value_serde=TEXT)
    left.join(right, lambda *both: "", foreign_key=str, value_serde=TEXT)
    made = builder.build()
    made.validate()
    with pytest.raises(TopologyError, match=r"can't be read behind a repartition topic.* it is neither of windows nor"):
        stages_of(made)


def test_a_table_joined_with_itself_is_refused_with_the_way_out() -> None:
    def program(*, repartitions: bool) -> Topology:
        builder = StreamsBuilder()
        left = builder.table("left", key_serde=TEXT, value_serde=TEXT)
        right = left.to_stream().repartition(name="same").to_table() if repartitions else left
        left.join(right, lambda *both: "", foreign_key=lambda value: value, value_serde=TEXT, name="met")
        return builder.build()

    with pytest.raises(TopologyError, match=r"topics 'met-subscription-registration-topic', .* call repartition\(\)"):
        stages_of(program(repartitions=False))
    assert len(stages_of(program(repartitions=True))) == 3


def test_global_stores_are_in_every_stage() -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", key_serde=TEXT, value_serde=TEXT)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    by_value = stream.join(names, lambda key, _: key, lambda left, right: right, value_serde=TEXT)
    by_value.select_key(lambda _, value: value, key_serde=TEXT).group_by_key().count()
    first, second = stages_of(builder.build())
    assert first.topology.global_stores == second.topology.global_stores
    assert first.reads == {"in", "names"}
    assert second.reads is not None
    assert "names" in second.reads & first.later
    assert len(second.topology.store_builders) == 2
