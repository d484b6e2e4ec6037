"""A service as one reader may see it: the collections and columns that its grant names.

A reader sees a service through `Permitted`, which lacks everything else: a hidden collection has
no name there, and a hidden column no values.  So no read needs checks of its own.  Keys are shown
whole: a reader who may not see keys may not see the collection.
"""

# Decision (what a token may see is a service): A reader is answered from a view in which other
# collections have no name and other columns no values, so no read has to remember to ask. Row
# conditions by token were left out: a view of the pipeline says them better.

from ikebana.processor.watching.guard import Grant
from ikebana.serving.reads import unknown_collection
from ikebana.serving.service import CollectionProgress, Service
from ikebana.serving.view import ArrangementView, Places


class Permitted:
    """A service as one reader may see it; `reads.Views`."""

    def __init__(self, service: Service, grant: Grant) -> None:
        self._service = service
        self._grant = grant
        self._places = Places()

    def names(self) -> list[str]:
        return [name for name in self._service.names() if self._grant.sees(name)]

    def view(self, name: str) -> ArrangementView:
        if not self._grant.sees(name):
            raise unknown_collection(name, self.names())
        whole = self._service.view(name)
        columns = self._grant.columns(name)
        return whole if columns is None else whole.of_columns(columns, self._places)

    def standing(self, name: str) -> CollectionProgress:
        """Return the progress of a collection that the reader may see."""
        if not self._grant.sees(name):
            raise unknown_collection(name, self.names())
        return self._service.standing(name)

    def pause(self, seconds: float) -> None:
        self._service.pause(seconds)

    def close(self) -> None:
        """Do nothing: the service stays open for other readers."""
