"""The one loop that runs any workflow, with its policies beside it."""
