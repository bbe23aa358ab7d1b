"""GPUs that jobs share, or leave idle: which jobs share one, on which one a job goes, and what idle ones are for."""
