"""What makes state durable: the location, deltas, the commit pointer, and the local copies rebuilt from them.

making/      a state made outside a query: filled, rescaled, checked, and complete at the end
shard_batch  ShardedState and ShardBatch: one micro-batch of one shard, from opening to commit. The one door for queries
snapshots/   a checkpoint of a shard's database, planned with a commit, uploaded beside later ones; garbage
local/       copies on this machine, how far each one is, and who holds it
restore/     from snapshot and deltas to a version of a shard
heads/       what was committed last, for readers that have no Spark
fences/      which run may go on from where, and from what no run may
commit/      what a commit consists of: pointer, delta, changelog, manifest of a snapshot
metadata/    what is recorded of a state as a whole, and who agreed on it
location/    where all of it lies, and how it is written so that nothing is half there

Each imports only from below itself. Start at `shard_batch`, then `commit.pointer`.
"""
