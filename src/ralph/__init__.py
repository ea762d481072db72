"""Ralph runs AI coding agents in loops until the work is verified done."""

__version__ = "0.1.0"
