"""Guards: rules that find work which gamed the checks.

An error holds the work up, a warning only tells; where honest work could look the same, a rule warns. What honest work
keeps is the same everywhere: a claim of a test keeps its values wherever it moves (`ledger`), a check of an input its
error or its message (`validation`), a command of the checks its kind, its reach and its exit code (`commands`), an error
the ear that heard it (`swallowed`), a value its type (`silenced`). So the rules do not compare texts; they ask who took
over what is gone.
"""

from ralph.verify.guards.changes import FileChange
from ralph.verify.guards.scan import scan

__all__ = ["FileChange", "scan"]
