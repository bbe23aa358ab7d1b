"""What the collectors on the nodes wrote of GPUs, read on from where it was read to."""
