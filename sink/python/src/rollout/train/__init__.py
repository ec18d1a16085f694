"""Tensors, advantages and loss weights for a training step, and a check of the log-probabilities."""
