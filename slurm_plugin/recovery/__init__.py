"""What becomes of a job that failed because it got less than its user asked for."""
