"""Long-Range Arena: published data, generated data, and local substitutes that need no download."""
