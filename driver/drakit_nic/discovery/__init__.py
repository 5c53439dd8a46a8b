"""Discovery: which interfaces the machine has, which of them are offered as devices, and why others are not."""
