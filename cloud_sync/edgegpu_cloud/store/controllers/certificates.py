"""The certificates of controllers in the store: when each ends, and the requests for new ones with their answers."""

from sqlalchemy import Connection, insert, select, update

from edgegpu_cloud.store.controllers.schema import ControllerCertificateRow
from edgegpu_cloud.store.schema import table

_ROWS = table(ControllerCertificateRow)


class ControllerCertificates:
    """The certificates of controllers in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ends(self) -> dict[str, float]:
        """Return when the certificate of each controller ends, seconds since 1970, by its name."""
        rows = self._connection.execute(select(_ROWS.c.name, _ROWS.c.ends_at_s)).all()
        return {row.name: row.ends_at_s for row in rows}

    def write(self, name: str, *, ends_at_s: float, request: str = "") -> None:
        """Write when a certificate ends, and a request for the next one, in the place of what was there."""
        values = {"ends_at_s": ends_at_s, "request": request, "answer": ""}
        done = self._connection.execute(update(_ROWS).where(_ROWS.c.name == name).values(values))
        if not done.rowcount:
            self._connection.execute(insert(_ROWS).values(values | {"name": name}))

    def unanswered(self) -> dict[str, str]:
        """Return the requests that wait for an answer, by the controller's name."""
        query = select(_ROWS.c.name, _ROWS.c.request).where(_ROWS.c.request != "", _ROWS.c.answer == "")
        return {row.name: row.request for row in self._connection.execute(query)}

    def answer(self, name: str, request: str, answer: str) -> None:
        """Write the answer to a request, if that is still the one."""
        mine = (_ROWS.c.name == name) & (_ROWS.c.request == request)
        self._connection.execute(update(_ROWS).where(mine).values(answer=answer))

    def of(self, name: str) -> tuple[str, str]:
        """Return a controller's request and its answer; empty where there is none."""
        query = select(_ROWS.c.request, _ROWS.c.answer).where(_ROWS.c.name == name)
        found = self._connection.execute(query).one_or_none()
        return (found.request, found.answer) if found is not None else ("", "")
