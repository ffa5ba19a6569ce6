"""How a store's entries become bytes and back.

codec           what a store holds of a key, and stored bytes; state_serdes: the serdes of a store
entry_codec, entry_columns
                keys too, one by one and in columns
"""
