"""Reading what people and other programs wrote: files of a bounded size, and YAML that cannot exhaust memory or stack."""
