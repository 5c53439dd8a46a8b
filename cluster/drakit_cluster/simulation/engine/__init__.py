"""The engine: an event queue over nodes that are indexed by what they still fit."""
