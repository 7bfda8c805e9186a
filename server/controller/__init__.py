"""The cluster's brain: topics, partition states, elections, and the orders that follow from them."""

from .controller import Controller

__all__ = ["Controller"]
