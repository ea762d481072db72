"""What earlier turns learned: read, indexed, distilled into patterns, and recalled within a budget."""
