"""Checks of objects before the API server stores them: what a claim, template or class says to our drivers, judged by the code of ``prepare``."""
