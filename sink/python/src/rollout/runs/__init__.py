"""Reads the folder of a run: its commit log, its shards, and the groups that the filters keep."""
