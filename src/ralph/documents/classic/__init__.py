"""Codecs of classic sessions, whose files lie flat in one directory; with every way of writing them that is in use."""
