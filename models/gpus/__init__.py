"""GPUs that jobs share, or leave idle: which of a node's GPUs a job goes on, and what of the idle ones is of use."""
