"""State on disk: files, journal, documents, locks, mailbox, runs, and the user's own state."""
