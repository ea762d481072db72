"""The web page: one process that shows all runs of a user and sends what the user decides to them.

Like `cli` it calls `app` and shows `view`, and has no rules of its own. It needs the extra `ralph-engine[web]`.
"""
