"""The paper's datasets, and for every task one that each machine already has."""
