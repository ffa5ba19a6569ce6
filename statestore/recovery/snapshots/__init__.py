"""Snapshots of a shard, from the plan that is committed to the upload, and removal of what none needs."""
