"""Changelog topics of Kafka Streams: stores restored from them, states made of them, and states written to them.

Needs confluent-kafka, the extra `kafka`. Restoring itself does not, so records may come from anywhere.
"""
