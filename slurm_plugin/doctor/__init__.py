"""Check an installation as an administrator would.

`look` collects values (impure) in the types of `seen`. `checks` judges them with the functions of the `*_checks`
modules, and `metrics` turns them into Prometheus metrics (both pure).
"""
