"""The view of a run: its state folded from its journal, as every interface shows it."""
