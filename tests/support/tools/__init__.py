"""Runs of the command line, and migrations."""
