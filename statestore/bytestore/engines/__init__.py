"""Byte stores that hold entries: RocksDB, and memory.

rocksdb         a database of column families, and the byte store over one
rocksdb_options RocksDB's options, its errors, and those of the local disk
memory          the same in memory
memory_budget   how the memory is divided that state may take
scans           keys in order, those with a prefix, and scans that end with their store
table_files     tables of RocksDB, looked at, and written in order

Imports `protocol` and `chunks`; all other rooms import it. Start at `rocksdb`.
"""
