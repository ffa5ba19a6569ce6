"""Queries, their input, and the worker that has the library loaded."""
