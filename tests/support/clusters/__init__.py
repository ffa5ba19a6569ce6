"""Spark as a cluster of processes, and the jobs that run there."""
