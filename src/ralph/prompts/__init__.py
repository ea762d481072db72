"""Prompts as data files; `.ralph/prompts/NAME.md` in a project takes the place of the one shipped here."""
