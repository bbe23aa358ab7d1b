"""How much of each resource a job will need: a chain of small estimators, trained on accounting."""
