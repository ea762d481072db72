"""The loop workflow: one task, iterated until its criterion is verified."""
