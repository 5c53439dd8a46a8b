"""Values and decisions of a DRA node driver.

What belongs here: the vocabulary (device, claim, grant, slice), the author's contract, and every decision that can be made from values
alone. What does not: input or output of any kind, clocks, threads, third-party libraries. Imports only the standard library.
"""
