"""What will be asked for: series of demand, models that forecast them, and the choice among these by their past."""
