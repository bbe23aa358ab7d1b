"""What an admin would check: `seen` are the values, `look` asks (impure), `checks` judges, `metrics` counts (pure)."""
