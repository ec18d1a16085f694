"""The collector process behind rollout.collect()."""
