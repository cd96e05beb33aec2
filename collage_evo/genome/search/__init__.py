"""The evolutionary search: seeds, variation, selection, states and checkpoints."""
