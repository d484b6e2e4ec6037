"""Decode the records of progress topics."""

from confluent_kafka import Message

from ikebana.codecs import progress
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.progress import ProgressRecord
from ikebana.errors import IkebanaError


def progress_record(message: Message, refusal: type[IkebanaError]) -> ProgressRecord:
    """Decode a record of a progress topic; raise a `refusal` for any other message."""
    try:
        return progress.decode(message.value())
    except DecodeError as error:
        raise refusal(
            f"cannot use {message.topic()}[0]@{message.offset()}: {error.reason}",
            hint="Another version of ikebana, or another program, has written to the topic.",
        ) from None
