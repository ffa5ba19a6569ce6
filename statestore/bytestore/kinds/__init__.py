"""What a kind of store keeps, in which families, under which keys: `store_spec` first."""
