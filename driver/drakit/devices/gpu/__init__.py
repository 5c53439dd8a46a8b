"""NVIDIA GPUs: whole, and as MIG partitions made on demand.

``port`` is what is needed of the hardware, in NVML's terms; ``mock`` keeps it on machines made of data. ``mig`` is the arithmetic of partitions,
``offer`` turns GPUs into devices with shared counters, ``instances`` makes and removes partitions, ``driver`` is the family's driver.
"""
