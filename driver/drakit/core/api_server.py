"""What an API server says of itself: its version, and the features whose fields its ResourceSlices do not have."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApiServer:
    """``lacks`` names the feature gates whose fields are not in the server's schema; no gate can make it store them. Empty where it is not known."""

    version: str
    lacks: frozenset[str] = frozenset()
