"""The command line of the offline tools: `main` runs one command.

app            the application: its groups of commands, and how each command ends; exit_codes: what a code means
looking, serving, checking, moving, exchange, locations, changelogs
               the commands
options, option_groups, selecting
               options that several commands have, and what they become
printing       what they print

All that is printed is made here: the rooms below return values. Nothing imports it. Start at `app`.
"""
