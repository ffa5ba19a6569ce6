"""Heads: what was committed last, as a file that needs no Spark to be read.

head        the file: its name, its content, and how the newest is found
figures     what a head tells people of batches and shards
publishing  HeadPublisher: which batches of a run get one, and which runs may not publish over another

Imports `commit` and `location`; the listener in `statestore.spark` publishes, tools read. Start at `head`.
"""
