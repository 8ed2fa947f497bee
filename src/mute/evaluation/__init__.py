"""The audit: is the concept gone, what did it cost, is it fair, are counterfactuals plausible."""
