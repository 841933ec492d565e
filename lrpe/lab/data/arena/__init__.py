"""Long-Range Arena: generated, published, and stand-ins from this machine."""
