"""A leak budget: what is lost after an eraser so that no adversary of the panel reads more than the user allows."""
