"""Attention that is linear in the number of tokens, on the family of encodings."""
