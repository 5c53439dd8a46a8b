"""The controllers: claims from templates, release of claims that nobody uses any more, garbage collection by owners."""

from drakit_cluster.controllers.controllers import Controllers

__all__ = ["Controllers"]
