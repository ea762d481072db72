"""What the command line prints of a run: its journal as lines, and the live view."""
