"""`checkpoint` reads Spark's checkpoint; `rescale` begins a new state with what it says."""
