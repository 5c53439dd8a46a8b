"""What the shares of NICs did, from the numbers a driver has for the metrics: one row for each share and direction."""

from collections.abc import Mapping, Sequence

from drakit.core import context, quantity

COLUMNS = ("SHARE", "NIC", "DIRECTION", "RATE", "BYTES", "PACKETS", "DROPS", "BACKLOG")
_FIGURES: Mapping[str, str] = {
    "nic_share_rate_bits_per_second": "rate",
    "nic_share_bytes": "bytes",
    "nic_share_packets": "packets",
    "nic_share_drops": "drops",
    "nic_share_backlog_bytes": "backlog",
}


def of(readings: Sequence[context.Metric]) -> list[dict[str, str | int]]:
    """The rows, by share and direction: ``rate`` in bits per second as the kernel gives it back, ``backlog`` in bytes."""
    found: dict[tuple[str, str], dict[str, str | int]] = {}
    for reading in readings:
        if reading.name in _FIGURES:
            nic, share, direction = (reading.labels.get(label, "") for label in ("nic", "share", "direction"))
            row = found.setdefault((share, direction), {"share": share, "nic": nic, "direction": direction})
            row[_FIGURES[reading.name]] = int(reading.value)
    return [found[key] for key in sorted(found)]


def cells(row: Mapping[str, str | int]) -> tuple[str, ...]:
    """A row as it is printed."""
    rate = quantity.Quantity.of(int(row.get("rate", 0)))
    figures = (str(row.get(name, 0)) for name in ("bytes", "packets", "drops", "backlog"))
    return (str(row["share"]), str(row["nic"]), str(row["direction"]), str(rate), *figures)
