"""Jobs from sources other than a call of sacct: files of its output, slurmdbd's own tables, or exports of them."""
