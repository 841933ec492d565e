"""GLUE, and substitutes of the same format that need no download."""
