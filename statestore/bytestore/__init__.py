"""Ordered maps of bytes to bytes, and the only place that knows RocksDB.

protocol        ByteStore, which everything above works on; many writes at once, in rows; a layer over a store
chunks          parts of what may exceed memory, bounded in rows and bytes
engines/        RocksDB and memory: order of keys, memory budget, table files
kinds/          what a kind of store keeps: its specification, families, keys and entries, segments, versions
write_sets/     what a micro-batch has written and not yet committed, in memory or beyond it
upgrades        a store in an older format, opened and converted as it is read
header_index    entries found by their headers
kafka_streams/  directories as Kafka Streams lays them out: a task's, a store's, a segment's

Imports go down: kafka_streams and header_index, upgrades, then write_sets and kinds, then engines, then protocol and
chunks. Start at `protocol`, then `kinds.store_spec`; `kinds.kind_layout` is what a new kind of store is added to.
"""
