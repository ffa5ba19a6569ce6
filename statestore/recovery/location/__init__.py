"""Where durable state lies, and how it is read and written.

durable_location  DurableLocation: a directory or an object store, by URI
durable_files     how a filesystem is written to so that nothing is half there: object stores, HDFS, local disks
shard_files       names of a shard's files, and what any name that was read may look like
durable_json      small files that people read too, and the checksums of all
schemes           which URIs are taken, with which options, and what to tell the operator
azure, hdfs       files of Azure's own client, and of hdfs-native
retrying          requests that fail

Imports no other room of `recovery`; all of them import it. Start at `durable_location`.
"""
