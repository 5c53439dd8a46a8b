"""MPS control daemons, one for each grant that asks for MPS: as child processes of the driver, or as pods of their own."""
