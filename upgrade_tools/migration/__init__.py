"""Migration: state of any layout turned into a newer format, or into another layout, verified entry by entry.

request, plan   what a user asks for, and what will be done: known before anything is written
formats         which format each store gets
dry_run         all of it but the writing
to_task_directories, task_build, databases, conversions
                Kafka Streams' directories, made beside their places; places, publishing, journal: put there, at once
to_location     a state location
locks, disk_space, targets, fingerprints, changelog_offsets, unclean
                what is refused: applications that run, disks that are full, a source that has changed meanwhile
report          what was done

Imports `rows` and `states`; `changelogs` and the commands in `cli` import it. Start at `migrate`.
"""
