"""Structured logs, and the redaction and escaping of their text."""
