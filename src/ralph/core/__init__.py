"""Pure vocabulary: the words every other part of Ralph speaks. Imports nothing of ours."""
