"""What all methods share: labels, checks, routing, progress, persistence, and the register of them."""
