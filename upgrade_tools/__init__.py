"""Offline tools for state: they work on files, without Spark and without the running query.

cli/         the command line: options, and all that is printed
serve/       committed state over HTTP
changelogs/  changelog topics of Kafka Streams: state made of them, and state written to them
migration/   state turned into a newer format or another layout, verified entry by entry
check/       what there is of a state, what is wrong with it, and how two states differ
location/    files of a state location: which there are, garbage, rescale, rollback
rows/        entries that are asked for, and as rows of files: export and import
states/      state wherever it lies, read in one way
errors       errors that only the tools raise, under the library's root

Each imports only from below itself, `migration` and `check` not from each other, `location` and `rows` neither.
Start at `states.state`, then at the command in `cli` that you look for.
"""
