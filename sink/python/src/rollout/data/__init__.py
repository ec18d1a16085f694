"""Batches of whole groups, for every rank and DataLoader worker."""
