"""Trained models on disk: the registry, what is in a version, which one answers, and which old ones go."""
