"""GPUs that jobs share, or leave idle: who shares one, on which of a node's a job goes, and what idle ones are for."""
