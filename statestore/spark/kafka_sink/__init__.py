"""A sink for foreachBatch that writes to Kafka exactly once: needs the extra `kafka`.

writer          KafkaTransactions, what users give to foreachBatch; runs on the driver
run             a run of a writer on the driver: what is in Kafka, and what tasks are told
tasks           what runs in each task: rows with an end that can be told, then what is done with a partition
partition       one partition: written in one transaction with its marker, or found to be there
transaction     a transaction of Kafka
markers         the records that say what was written, and who may write; their topic
cluster         what is asked of Kafka beside

Imports `spark.blobs`, `spark.schema` and layers below; nothing imports it. Start at `partition`.
"""

from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.writer import KafkaTransactions

__all__ = ["KafkaCluster", "KafkaTransactions"]
