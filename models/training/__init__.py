"""From attempts to an artefact: the rows, the trees, and how far above them is safe."""
