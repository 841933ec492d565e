"""Text for language models: its sources, tokenisers and windows."""
