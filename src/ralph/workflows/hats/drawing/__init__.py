"""The graph of a preset: its nodes and edges, a layout for any screen, and text for the terminal and for Mermaid."""
