"""What the command line calls kinds of stores; the data source has the same names."""

from statestore.bytestore.kinds.kind_names import Kind, Meaning

__all__ = ["Kind", "Meaning"]
