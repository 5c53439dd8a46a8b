"""Who is told what became of a claim where nobody wants to know."""

from drakit.core import claim


class Nobody:
    """A ``ports.Witness`` who does not care."""

    def prepared(self, ref: claim.ClaimRef) -> None:
        """Nothing."""

    def failed(self, ref: claim.ClaimRef, error: Exception) -> None:
        """Nothing."""

    def unprepared(self, ref: claim.ClaimRef) -> None:
        """Nothing."""
