"""Speed as a ratio: to a limit of the machine or to a peer, side by side in the same run."""
