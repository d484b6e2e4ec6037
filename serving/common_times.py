"""Times of several collections together."""

from collections.abc import Sequence

from ikebana.serving.view import CollectionView, UnknownCollectionError


def frontier(views: Sequence[CollectionView]) -> int:
    """Return the frontier of all views together.

    Raises:
        UnknownCollectionError: there are none.
    """
    if not views:
        raise UnknownCollectionError(
            "there is no collection here", hint="`ikebana serve` makes them, one for each topic."
        )
    return min(view.meta.upper for view in views)


def newest(views: Sequence[CollectionView]) -> int:
    """Return the newest time that can be read of all views.

    Raises:
        UnknownCollectionError: there are none.
        UnreadableTimeError: there is none.
    """
    time = frontier(views) - 1
    for view in views:
        view.check(time)
    return time
