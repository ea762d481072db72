"""The files of a session: progress, metadata, tasks, reports, questions, feedback, reviews, knowledge; text in, values out."""

HOME = ".ralph-sessions"
"""Where sessions are, in the project."""
