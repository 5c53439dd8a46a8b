"""MPS daemons that do not end with the driver: as pods of their own, behind the same port as child processes."""
