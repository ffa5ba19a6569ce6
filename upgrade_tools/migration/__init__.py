"""Migration: state of any layout turned into a newer format, or into another layout, verified entry by entry.

planning        what a user asks for, and what will be done: known before anything is written
to_task_directories, task_build, databases
                Kafka Streams' directories, made beside their places; places, publishing, journal: put there, at once
to_location     a state location
dry_run         all of it but the writing
locks, disk_space, changelog_offsets
                what is refused: applications that run, disks that are full
report          what was done, and notes on stores that were not closed cleanly

Imports `rows` and `states`; `changelogs` and the commands in `cli` import it. Start at `migrate`.
"""
