"""What is read of Spark's checkpoint: checkpoint_pointers, source_offsets; `rescale` begins anew with what they say."""
