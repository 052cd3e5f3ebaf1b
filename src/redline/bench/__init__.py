"""Measurements that users can repeat on their own machine, beside the limit of that machine."""
