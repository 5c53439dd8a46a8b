"""Traffic of shares as ``drakit show`` prints it."""

from drakit.cli.commands import show
from drakit.core import advanced


def reading(name: str, value: float, direction: str = "egress", share: str = "s1") -> advanced.Metric:
    return advanced.Metric(name=name, documentation="", value=value, labels={"nic": "eth1", "share": share, "direction": direction})


def test_a_row_has_all_figures_of_one_share_and_direction() -> None:
    figures = {"rate_bits_per_second": 1e9, "bytes": 1500, "packets": 3, "drops": 2, "backlog_bytes": 90}
    found = show.traffic_rows([reading(f"nic_share_{name}", value) for name, value in figures.items()])
    assert found == [
        {"share": "s1", "nic": "eth1", "direction": "egress", "rate": 10**9, "bytes": 1500, "packets": 3, "drops": 2, "backlog": 90}
    ]
    assert show.traffic_cells(found[0]) == ("s1", "eth1", "egress", "1G", "1500", "3", "2", "90")


def test_rows_are_sorted_by_share_and_direction_without_other_metrics() -> None:
    readings = [
        reading("nic_share_bytes", 1, direction, share) for share, direction in (("s2", "egress"), ("s1", "ingress"), ("s1", "egress"))
    ]
    found = show.traffic_rows([*readings, advanced.Metric(name="gpu_memory", documentation="", value=1)])
    assert [(row["share"], row["direction"]) for row in found] == [("s1", "egress"), ("s1", "ingress"), ("s2", "egress")]
    assert show.traffic_rows([]) == []
