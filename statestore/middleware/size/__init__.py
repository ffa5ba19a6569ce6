"""What a record weighs: compression, slices, claim checks, short ids and limits of headers."""
