"""The controllers: claims from templates, release of unused claims, garbage collection by owners."""

from drakit_cluster.controllers.controllers import Controllers

__all__ = ["Controllers"]
