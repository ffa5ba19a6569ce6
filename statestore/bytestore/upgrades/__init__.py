"""Stores whose database holds an older format: opened as they are, converted as they are read, or refused."""
