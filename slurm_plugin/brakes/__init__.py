"""Stops cutting automatically if jobs that were cut fail more often than others (docs/decisions/0042).

`evidence` counts what ended and `judging` decides when it is enough (both pure). `pulled` is the file of what is
stopped, which everything that decides looks at. `watch` reads what ended and pulls brakes.
"""
