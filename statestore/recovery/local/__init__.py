"""Copies of shards on this machine, in directories or in memory: how far each one is, and who holds it."""
