"""Tensors, advantages and loss weights for a training step. Also contains check(), which verifies
log-probabilities."""
