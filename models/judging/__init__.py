"""Whether a model, a policy or a rule is good enough: replays of the past, promotion, calibration and drift."""
