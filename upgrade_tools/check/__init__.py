"""What there is of a state, what is wrong with it, and how two states differ: nothing is changed.

inspection      what files say of a state: stores, their possible kinds and sizes, and figures of their entries
state_check     all of a state read, and what is wrong; store_check: its entries, location_check: files of a location
comparison      two states compared entry by entry, whatever their layouts

Imports `location`, `rows` and `states`; the commands in `cli` import it. Start at `state_check`.
"""
