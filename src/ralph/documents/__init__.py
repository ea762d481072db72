"""Pure codecs, bytes to values and back, for every file a person may read or edit."""
