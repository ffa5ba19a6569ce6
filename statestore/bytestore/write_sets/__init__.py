"""What a micro-batch has written so far: read through, and applied at the commit.

write_set       in memory, over a store that is left as it is
spilling_write_set
                partly on disk, when it is too much; spilling: how much that is, and where it goes

Imports `engines`; stores and `recovery` import it. Start at `write_set`.
"""
