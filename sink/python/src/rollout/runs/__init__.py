"""The folder of a run: its commit log, its shards, and its groups after the filters."""
