"""The changelogs of a program, by stage: all that belong together, and how many partitions they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from upgrade_tools.changelogs.cluster import Cluster, Offsets
from upgrade_tools.changelogs.reading import ChangelogTopic, changelog_topic, find_changelogs
from upgrade_tools.errors import ChangelogError
from upgrade_tools.states.program import Program, ProgramStage


@dataclass(frozen=True)
class StageLogs:
    """The changelogs of the stores of one stage."""

    stage: ProgramStage
    changelogs: Sequence[ChangelogTopic]
    shards: int
    """The least common multiple of their partitions: so each shard has keys of one partition. Of a stage without stores
    it is how many partitions the topic with the most has that it reads."""

    @property
    def span(self) -> int:
        """How many offsets there are in all changelogs."""
        return sum(changelog.span for changelog in self.changelogs)


def find_stage_logs(
    cluster: Cluster, application_id: str, program: Program, begins: Offsets, *, transactional: bool = False
) -> list[StageLogs]:
    """Return the changelogs of each stage of a program; `begins` has the topics of its input.

    Raises what `find_changelogs` raises.
    """
    own = {topic: repartition_topic(application_id, topic) for topic in program.repartition_topics}
    found = []
    for stage in program.stages:
        logs = find_changelogs(cluster, application_id, stage.stores, transactional=transactional)
        read = () if logs else [cluster.partitions(own.get(topic, topic)) for topic in stage.reads or begins]
        shards = lcm(*(len(log.logs) for log in logs)) if logs else max(read, default=1)
        found.append(StageLogs(stage, logs, shards))
    return found


def repartition_topic(application_id: str, topic: str) -> str:
    """Return the name of a repartition topic of a program in Kafka."""
    return f"{application_id}-{topic}"


def refuse_other_changelogs(cluster: Cluster, application_id: str, program: Program) -> None:
    """Raise ChangelogError if the application has a changelog of no store of the program."""
    # A query's state that was written back may have left changelogs of all its stores.
    names = {*program.stores, *(store for stage in program.stages for store in stage.beside)}
    known = {changelog_topic(application_id, store) for store in names}
    beginning, _, end = changelog_topic(application_id, "\n").partition("\n")
    for topic in sorted(cluster.topics()):
        if topic.startswith(beginning) and topic.endswith(end) and topic not in known:
            raise ChangelogError(
                topic,
                f"no stage of the program has its store: the stores are {', '.join(program.stores) or 'none'}. If it "
                "is not needed, or another application's, name each store that is to be moved with --store",
            )
