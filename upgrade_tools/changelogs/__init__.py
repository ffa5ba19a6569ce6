"""Changelog topics of Kafka Streams: stores restored from them, states made of them, and states written to them.

cluster        a Kafka cluster, as far as it is needed here; group_offsets: where an application's input stands
reading, logs  records of a changelog, and whether all of them are there; in_order_of_time: those
                records sorted on disk
stage_logs     the changelogs of a program's stages
restoring      a store of its records; to_directories, to_state: as task directories, as a state location
state_records  the records that a state would have in its changelogs
emitting       a state written to changelogs; topic_setup, survey, writing, restored_log: what that takes

Needs confluent-kafka, the extra `kafka`. Restoring itself does not, so records may come from anywhere. Imports
`migration` and what is below; the commands in `cli` import it. Start at `restoring`, or at `emitting`.
"""
