"""A URL shortener for one machine."""
