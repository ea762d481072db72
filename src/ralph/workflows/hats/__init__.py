"""The rules of hats: events, which hat receives them, what counts as done, and the prompt of each turn."""
