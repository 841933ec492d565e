"""A static page on which two encodings are looked at side by side; its mathematics runs in the browser."""
