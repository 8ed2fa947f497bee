"""Base classes of all methods (labels, checks, routing, progress, files) and the registry of methods."""
