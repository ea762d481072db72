"""What can be said of a preset before it runs: can it finish, by which way, and what is wrong where."""
