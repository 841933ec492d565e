"""GLUE, and tasks of its shape from this machine."""
