"""The Processor API: records, processors, topologies, and the task that runs one for one shard.

topology        Topology, which a user declares; nodes: what is in it
processor       what a user writes; context, record, punctuation, processor_metadata, counted:
                what is handed to it
task            runs a topology over the records of a shard; task_stores: its stores; failing_records: those that fail
earlier_times   what was seen of event time before the state was rescaled
receivers       what each kind of node does with a record; column_receivers: with records in columns
interceptors    what interceptors have of a task, and their hooks for records that are no bytes
chain_client    the same around a plain client of Kafka
rehearsal       a topology tried out before it runs
pictures        what a topology looks like

Imports `stores`, and of `recovery` what a commit consists of; `operators`, `spark` and `testing` import it. Start at
`topology`, then `task`.
"""
