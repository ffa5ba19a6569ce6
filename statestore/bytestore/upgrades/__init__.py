"""Stores whose database holds an older format: opened as they are, converted as they are read, or refused.

opening         which of the three it will be, by the column families that a database has
upgrading       entries that move as they are touched, and what is left moved bit by bit

Imports `kinds` and `engines`; stores, local copies and the tools import it. Start at `opening`.
"""
