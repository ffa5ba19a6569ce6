"""What a commit of a shard consists of. Durable formats: each module owns one, see `docs/formats`.

pointer         CommitPointer, which Spark's state holds: the only thing that decides what is committed
delta           a delta file; batch_delta: that of a batch while it goes on
changelog       the records in it, and how they come back
manifest        the files of a snapshot
pointer_fields  what a pointer has beside files: due punctuations, numbers of processors, what earlier shards had seen
figures         what a batch did, in figures

Imports `location`; all other rooms of `recovery` but `metadata` import it, and so do stores, for their changelogs.
Start at `pointer`.
"""
