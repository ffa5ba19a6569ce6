"""State directories of Kafka Streams: read as they are, and written so that Kafka Streams reads them.

task_directory  TaskDirectory: a task's directory, opened, changed and left
task_store      a store in it with all its databases; store_database: one of them
segment_directories
                a database for each segment, as one ordered map
layout          names and places; kind_record: what we note of a store
directory_view  databases read without a change to them
task_contents   what there is, before anything is known of it

Imports all other rooms of `bytestore` but `write_sets`; the test driver and the tools import it.
Start at `task_directory`.
"""
