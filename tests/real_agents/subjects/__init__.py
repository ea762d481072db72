"""The agent programs that the tests drive, one module each."""
