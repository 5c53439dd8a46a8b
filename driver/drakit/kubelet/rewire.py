"""From one version of a message to another of the same shape: equal field numbers mean equal bytes.

Kubernetes keeps several versions of its gRPC services, whose messages have the same numbers. Each is written down once here, in terms of one of
them, and rewired at the socket.
"""

from typing import TypeVar

from google.protobuf import message

Message = TypeVar("Message", bound=message.Message)


def into(kind: type[Message], other: message.Message) -> Message:
    """The same message in another version; what that version does not know is dropped."""
    made = kind.FromString(other.SerializeToString())
    made.DiscardUnknownFields()
    return made
