"""Where turns run."""
