"""Text for language models: where it comes from, tokenisers, windows."""
