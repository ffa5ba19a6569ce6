"""A sink for foreachBatch that writes to Kafka exactly once: needs the extra `kafka`.

writer          KafkaTransactions, what users give to foreachBatch; runs on the driver
tasks           what runs in each task: rows with an end that can be told, then write_partition
transaction     one partition in one transaction with its marker
markers         the records that say what was written, and their topic
cluster         what is asked of Kafka beside

Imports `spark.blobs`, `spark.schema` and layers below; nothing imports it. Start at `transaction`.
"""

from statestore.spark.kafka_sink.cluster import KafkaCluster
from statestore.spark.kafka_sink.writer import KafkaTransactions

__all__ = ["KafkaCluster", "KafkaTransactions"]
