"""A mock machine: interfaces, shares and pods without a kernel, kept in files and in memory."""
