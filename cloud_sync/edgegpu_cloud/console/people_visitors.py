"""The sessions and API tokens of the store's people, as the pages know them."""

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.people.people import People
from edgegpu_cloud.people.sessions import Session


class PeopleVisitors:
    """Knows the sessions and the API tokens of a store."""

    def __init__(self, people: People) -> None:
        """Take the people of a store."""
        self._people = people

    def visitor(self, token: str) -> Visitor | None:
        """Return the person of a session's token; None where there is no such session, or it has ended."""
        found = self._people.session(token)
        return _visitor(found, found.account) if found else None

    def of_api_token(self, text: str) -> Visitor | None:
        """Return the person of an API token, named as the audit names them; None where it is not valid."""
        found = self._people.api_token(text)
        return _visitor(found, found.by) if found else None


def _visitor(session: Session, name: str) -> Visitor:
    return Visitor(name=name, role=session.role, csrf=session.csrf, scope=session.scope_text, language=session.language)
