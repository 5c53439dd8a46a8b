"""The engine: an event queue, and nodes that are indexed by the pods that they may fit."""
