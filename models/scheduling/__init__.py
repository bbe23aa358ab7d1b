"""In which order jobs start, where, and what may pass what: pure policies that a simulator and production share."""
