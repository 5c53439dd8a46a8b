"""MPS control daemons, one for each grant that requests MPS, in pods of their own."""
