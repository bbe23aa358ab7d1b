"""Jobs from elsewhere than a call of sacct: files that it printed, slurmdbd's own tables, or exports of them."""
