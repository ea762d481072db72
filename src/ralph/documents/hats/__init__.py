"""Hats: the preset format, what a run takes from it, and where its shared documents are."""
