"""What an admin would check.

`seen` are the values that `look` asks for (impure); `checks` judges them, by the `*_checks`; `metrics` counts (pure).
"""
