"""Tables of jobs from elsewhere than sacct: files that it printed, slurmdbd's own tables, or exports of them."""
