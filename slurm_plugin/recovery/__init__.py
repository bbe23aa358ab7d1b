"""Recovers jobs that failed because they got less than their users asked for."""
