"""Times of several collections together."""

from collections.abc import Sequence

from ikebana.codecs.progress import Times
from ikebana.processor.topics.kinds_of_time import kind_of, refuse_mixed
from ikebana.serving.view import CollectionView, UnknownCollectionError


def frontier(views: Sequence[CollectionView]) -> int:
    """Return the frontier of all views together.

    Raises:
        MixedTimesError: their times are of different kinds.
        UnknownCollectionError: there are none.
    """
    if not views:
        raise UnknownCollectionError(
            "there is no collection here", hint="`ikebana serve` makes them, one for each topic."
        )
    check_kinds(views)
    return min(view.meta.upper for view in views)


def check_kinds(views: Sequence[CollectionView]) -> None:
    """Refuse to read views with different kinds of times together.

    Raises: MixedTimesError.
    """
    refuse_mixed({view.meta.topic: kind(view) for view in views})


def kind(view: CollectionView) -> Times | None:
    """Return the kind of a view's times; None if it is not known."""
    return kind_of(view.meta.times, view.meta.upper)


def newest(views: Sequence[CollectionView]) -> int:
    """Return the newest time that can be read of all views.

    Raises:
        MixedTimesError: their times are of different kinds.
        UnknownCollectionError: there are none.
        UnreadableTimeError: there is none.
    """
    time = frontier(views) - 1
    for view in views:
        view.check(time)
    return time
