"""One run as one HTML page that needs no network, no script and no other file."""
