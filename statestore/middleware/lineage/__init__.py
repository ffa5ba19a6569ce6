"""Where a record has been: traces, the routing trail, and what it cost."""
