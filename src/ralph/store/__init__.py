"""What is kept on disk: journal, documents, locks, mailbox, the run directory."""
