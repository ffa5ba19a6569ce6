"""Ways to break the sink, bugs that it had among them: `python -m tests.simulation.mutations --of sink`."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutations import Mutation

SINK_MUTATIONS: Final = (
    Mutation(
        "a marker is known by its counts alone",
        "spark.kafka_sink.markers",
        "Marker.covers",
        "(self.is_of_plan and digest and self.digest != digest)",
        "False",
    ),
    Mutation(
        "a later batch is not seen",
        "spark.kafka_sink.markers",
        "Marker.covers",
        "self.batch > batch_id or",
        "False or",
        "its digest is another one, too",
    ),
    Mutation(
        "another number of partitions is not seen",
        "spark.kafka_sink.markers",
        "Marker.covers",
        "if self.partitions != partitions:",
        "if False:",
    ),
    Mutation(
        "a partition without rows reads no marker",
        "spark.kafka_sink.partition",
        "write_partition",
        "if rows.records == 0:",
        "if False:",
        "a repeat is looked at before, with the markers that the driver knows",
    ),
    Mutation(
        "a marker is read before the takeover",
        "spark.kafka_sink.partition",
        "write_partition",
        "                transaction = plan.writer.take_over(plan.writer.transactional_id(partition))\n"
        "                marker = plan.written(partition)\n",
        "                marker = plan.written(partition)\n"
        "                transaction = plan.writer.take_over(plan.writer.transactional_id(partition))\n",
    ),
    Mutation(
        "a repeat is not looked at",
        "spark.kafka_sink.partition",
        "BatchPlan.is_repeat",
        "return any(marker.batch == self.batch_id for marker in self.markers.values())",
        "return False",
    ),
    Mutation(
        "records are not compared",
        "spark.kafka_sink.partition",
        "BatchPlan.check",
        "marker.is_of_records and marker.digest != rows.digest",
        "False",
    ),
    Mutation(
        "counts are not compared",
        "spark.kafka_sink.partition",
        "BatchPlan.check",
        "if rows.records != marker.records:",
        "if False:",
    ),
    Mutation(
        "tasks do not see a later run",
        "spark.kafka_sink.partition",
        "BatchPlan.written",
        "if run is not None and run.run != self.run:",
        "if False:",
    ),
    Mutation(
        "ids collide",
        "spark.kafka_sink.partition",
        "Writer.transactional_id",
        'return "/".join([self.prefix, *parts])',
        'return "-".join(filter(None, [self.prefix, *parts]))',
    ),
    Mutation(
        "a run ends nothing",
        "spark.kafka_sink.run",
        "WriterRun._begin",
        "self._end_all(map(writer.transactional_id, range(most)))",
        "pass",
    ),
    Mutation(
        "a run ends its own partitions alone",
        "spark.kafka_sink.run",
        "WriterRun._begin",
        "most = max(partitions, left.most_partitions)",
        "most = partitions",
    ),
    Mutation(
        "a run does not say that it has begun",
        "spark.kafka_sink.run",
        "WriterRun._begin",
        "self._say(transaction, most)",
        "self._name = left.run.run if left.run else self._name; left.run or self._say(transaction, most)",
    ),
    Mutation(
        "a run that was overtaken as it began goes on",
        "spark.kafka_sink.run",
        "WriterRun._read",
        "if found.run is None or found.run.run != self._name:",
        "if False:",
    ),
    Mutation(
        "more partitions are not said",
        "spark.kafka_sink.run",
        "WriterRun.plan",
        "if partitions > self._found.most_partitions:",
        "if False:",
    ),
    Mutation(
        "what the checkpoint has planned before is not compared",
        "spark.kafka_sink.run",
        "WriterRun.plan",
        "if not self._is_of_checkpoint:",
        "if False:",
    ),
)
