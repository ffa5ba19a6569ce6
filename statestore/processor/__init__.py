"""The Processor API: records, processors, topologies, and the task that runs one for one shard."""
