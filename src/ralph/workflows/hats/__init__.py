"""The rules of hats: events, who takes them, what counts as done, and what each turn is told."""
