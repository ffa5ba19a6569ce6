"""Snapshots of a shard, from the plan that is committed to the upload, and removal of what none needs.

step            what the end of a batch does about snapshots
planned         one on its way, in the local directory; upload: brought to the location beside later batches
garbage         files that no retained version needs
options         RecoveryOptions: how often, and how much is kept

Imports `local`, `restore`, `commit` and `location`; `shard_batch` imports it, and the tools for garbage.
Start at `step`.
"""
