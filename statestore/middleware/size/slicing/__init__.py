"""Large messages as several records: sliced on their way out, and glued on their way in.

slice           Slice: what the header of each says of it; Cutting: a record into its slices
open_messages   OpenMessages: slices in state until the last one has come
interceptor     Slicing, which does all that

Imports the foundation of `statestore.middleware` and the stores. Start at `interceptor`.
"""

from statestore.middleware.size.slicing.interceptor import Slicing
from statestore.middleware.size.slicing.slice import CHUNK_HEADER

__all__ = ["CHUNK_HEADER", "Slicing"]
