"""How long jobs of a type run with given resources, as in the resource-demand paper, and requests scaled by that."""
