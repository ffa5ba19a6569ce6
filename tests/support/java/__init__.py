"""Programs that run with the real jars of Kafka Streams and Kafka Connect."""
