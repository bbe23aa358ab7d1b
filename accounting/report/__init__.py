"""What the store tells an analyst: who asks for what and uses how much, what is wasted, and how far labels reach."""
