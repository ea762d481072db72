"""What agents call while they work: `ralph emit` and `ralph tools`. `main` has the table of tools.

Agents wait for these commands hundreds of times in a run, so nothing slow is imported here: see `arguments`.
"""
