"""Criteria, the checks they compile to, and running those checks."""
