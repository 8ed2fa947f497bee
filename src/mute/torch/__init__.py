"""Erase or steer a layer of a torch model while it runs."""
