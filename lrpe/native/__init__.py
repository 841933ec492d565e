"""The C++ sources of the native engine, and the script that compiles them."""
