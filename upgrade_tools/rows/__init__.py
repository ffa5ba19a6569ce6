"""Entries of a state: those that are asked for, and as rows that go to files and come back.

selection      which entries are asked for, and how to read no more than may be among them
expiry         which writes are live at a store's latest time, of a store that is read or of rows
entry_encoding what keys and values are shown as, and asked for as
rows, files    entries as Arrow rows, and rows in files; exchange: a state exported, and imported

Imports `states`; all rooms above import it. Start at `selection`.
"""
