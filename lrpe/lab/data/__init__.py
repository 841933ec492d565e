"""The paper's datasets, and for each task a dataset that needs no download."""
