"""What stops cutting by itself where jobs that were cut fail more often than others (docs/decisions/0042).

`evidence` counts what ended and `judging` says when it is enough (pure); `pulled` is the file of what is stopped, which
all that decide look at; `watch` reads what ended and pulls.
"""
