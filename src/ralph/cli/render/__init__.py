"""How the command line shows a run: its journal as lines, its end, and the live view."""
