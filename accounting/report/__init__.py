"""Reports for analysts: who requests what and uses how much, what is wasted, and how far labels can be trusted."""
