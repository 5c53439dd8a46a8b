"""Check the driver configurations of claims, templates and classes before the API server stores them, with the code of ``prepare``."""
