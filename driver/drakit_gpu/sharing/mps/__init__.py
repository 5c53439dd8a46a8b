"""MPS control daemons, one for each grant that requests MPS: as child processes of the driver, or as pods of their own."""
