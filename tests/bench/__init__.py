"""Benchmarks: every figure beside a floor measured in the same run.

``make bench`` runs all of them; one is ``PYTHONPATH=tests python -m bench NAME``.
"""
