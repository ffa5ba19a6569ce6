"""What one shard is given and gives back.

pack            rows to blobs before the shuffle, and back
blobs, schema   what crosses the shuffle, and the rows at both ends
shard_call      one call per shard and batch; record_order: the order of its records
"""
