"""Pure codecs, bytes to values and back, for every file that the user may read or edit."""
