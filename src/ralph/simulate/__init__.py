"""A whole run without an agent: the real kernel and rules, in a world of chance where time passes at once."""
