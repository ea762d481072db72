"""The agent `parrot` for Ralph: a template of an adapter."""
