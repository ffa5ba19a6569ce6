"""Runs of a query on a shard: which of them may write, and from which commit.

run_fences      RunFences: how a run enters a shard, and how it learns that it may not go on
history         fences, the files by which runs know of each other, and what they tell: which run made which version

Imports `commit`, `metadata` and `location`; `shard_batch` imports it, and the tool that rolls back.
Start at `run_fences`.
"""
