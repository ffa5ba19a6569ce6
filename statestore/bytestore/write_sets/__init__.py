"""What a micro-batch has written so far: read through, and applied at the commit.

write_set       in memory, over a store that is left as it is
spilling        partly on disk, when it is too much: how much that is, and where it goes

Imports `engines`; stores and `recovery` import it. Start at `write_set`.
"""
