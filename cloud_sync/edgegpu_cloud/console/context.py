"""What a route takes from the application: the fleet as the person sees it, and the pages."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import SignedIn, Visitor
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.people.people import People
from edgegpu_cloud.rollouts.rollouts import Rollouts
from edgegpu_cloud.store.store import ControllerStore

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts


def fleet_of(store: ControllerStore, visitor: Visitor, *, clock: Callable[[], float]) -> Fleet:
    """Return the fleet as a person sees and changes it."""
    access = visitor.access
    return Fleet(store, clock=clock, by=access.by, role=access.role, scope=access.scope)


def rollouts_of(store: ControllerStore, visitor: Visitor, *, clock: Callable[[], float]) -> Rollouts:
    """Return the rollouts as a person sees and changes them."""
    return Rollouts(store, clock=clock, access=visitor.access)


def _fleet(request: Request, visitor: SignedIn) -> Fleet:
    parts: ConsoleParts = request.state.parts
    return parts.fleet(visitor)


def _pages(request: Request) -> PageRenderer:
    found: PageRenderer = request.state.pages
    return found


VisitorFleet = Annotated[Fleet, Depends(_fleet)]
"""The fleet as the signed-in person sees and changes it; a route that has it needs a session."""


def _operations(request: Request, visitor: SignedIn) -> Operations:
    parts: ConsoleParts = request.state.parts
    return parts.operations(visitor)


VisitorOperations = Annotated[Operations, Depends(_operations)]
"""The operations as the signed-in person sees and starts them."""


def _rollouts(request: Request, visitor: SignedIn) -> Rollouts:
    parts: ConsoleParts = request.state.parts
    return parts.rollouts(visitor)


VisitorRollouts = Annotated[Rollouts, Depends(_rollouts)]
"""The rollouts as the signed-in person sees and starts them."""


def _people(request: Request) -> People:
    parts: ConsoleParts = request.state.parts
    return parts.people


Persons = Annotated[People, Depends(_people)]
"""The people of the store; a route that has it may be for somebody who is not signed in."""

Pages = Annotated[PageRenderer, Depends(_pages)]
