"""A preset as a picture: for Mermaid, for a browser, for the terminal."""
