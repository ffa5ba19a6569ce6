"""What one shard is given, and what it gives back.

pack            rows to blobs before the shuffle, and back after it
blobs, schema   what crosses the shuffle, and the rows at both ends
shard_call      one call per shard and batch; record_order: the order of its records
"""
