"""Classic sessions: flat files that tell the state, one task at a time, a review of the whole that adds what is missing."""
