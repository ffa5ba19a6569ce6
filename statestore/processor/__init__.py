"""The Processor API: records, processors, topologies, and the task that runs a topology for one shard.

topology        Topology, which a user declares; nodes: its parts; stages: how repartition topics divide it
processor       what a user writes; context, record, punctuation, processor_metadata: what a processor gets
task            runs a topology over the records of a shard; task_stores: its stores; failing_records: those that fail
earlier_times   the stream times that shards had seen before the state was rescaled
receivers       how each kind of node handles a record; column_receivers: the same for records in columns
column_sources  which rows of a batch go on together in columns
interceptors    the context of interceptors, and their hooks for deserialized records
chain_client    interceptors around a plain producer or consumer of Kafka
rehearsal       tries a topology out before it runs
pictures        descriptions and drawings of a topology
__main__        what the stages of a program hold, for tools that do not run it

Imports `stores`, and of `recovery` what a commit consists of; `operators`, `spark` and `testing` import it. Start at
`topology`, then `task`.
"""
