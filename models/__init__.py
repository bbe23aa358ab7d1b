"""What will happen: features, demand predictors, and the artefacts that serve them."""
