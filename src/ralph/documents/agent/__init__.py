"""Codecs of the files that agents share through `ralph emit` and `ralph tools`; agents wait for them, so they import little."""
