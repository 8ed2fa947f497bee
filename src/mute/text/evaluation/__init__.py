"""Scores of counterfactual texts."""
