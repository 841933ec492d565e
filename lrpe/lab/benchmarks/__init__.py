"""Benchmarks: every speed is a ratio to a peer, or to a limit of the machine, measured in the same run."""
