"""A lost journal: which claims it held, found again from the API server, the CDI files of the node, and the driver.

``rebuild`` looks the claims up, ``recall`` puts their grants together again, ``evidence`` says what CDI files prove.
"""
