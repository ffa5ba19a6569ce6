"""Topologies that run in the test driver of Kafka Streams and in ours, to be compared."""
