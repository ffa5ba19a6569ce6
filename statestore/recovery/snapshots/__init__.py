"""Snapshots of a shard, from the plan to the upload, and removal of files that no version needs.

step            what the end of a batch does about snapshots
planned         one under way, in the local directory; upload: brought to the location beside later batches
garbage         files that no retained version needs
options         RecoveryOptions: how often, and how much is kept

Imports `local`, `restore`, `commit` and `location`; `shard_batch` imports it, and the tools for garbage.
Start at `step`.
"""
