"""What a training step needs: tensors, advantages, loss weights, and a check of the log-probabilities."""
