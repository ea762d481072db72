"""The loop workflow: one task, iterated until its criterion is verified."""

HOME = ".aiwg/ralph"
"""Where loops keep their documents."""
