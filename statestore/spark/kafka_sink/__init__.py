"""A sink for foreachBatch that writes to Kafka exactly once: needs the extra `kafka`.

writer          KafkaTransactions, which users give to foreachBatch; runs on the driver
run             a run of a writer on the driver: what is in Kafka, and what to tell tasks
partition       what runs in each task: its partition is written in one transaction with its marker, or found in Kafka
transaction     a transaction of Kafka
markers         the records that say what was written, and who may write; their topic
cluster         everything else that is asked of Kafka

Imports `spark.shards` and layers below; nothing imports it. Start at `partition`.
"""

from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.writer import KafkaTransactions

__all__ = ["KafkaCluster", "KafkaTransactions"]
