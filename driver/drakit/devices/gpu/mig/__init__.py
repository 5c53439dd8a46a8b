"""MIG: which partitions a GPU can have and how they are counted; creating and deleting instances; which of them drakit created."""
