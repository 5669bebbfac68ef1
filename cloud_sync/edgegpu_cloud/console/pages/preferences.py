"""Language and theme, kept in cookies: they need no session, and no JavaScript."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.paths import own_path
from edgegpu_cloud.console.rendering import LANGUAGE_COOKIE, LANGUAGES, THEME_COOKIE, THEMES
from edgegpu_cloud.console.visitor import check_origin
from edgegpu_cloud.http.guard import BODY_MAX_BYTES

router = APIRouter()

_YEAR_S = 365 * 86_400


@router.post("/preferences")
def set_preferences(
    request: Request,
    back: Annotated[str, Form(max_length=BODY_MAX_BYTES)] = "/",
    language: Annotated[str, Form(max_length=8)] = "",
    theme: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Set language or theme, and go back to the page."""
    check_origin(request)
    answer = RedirectResponse(own_path(back), 303)
    for name, value, known in ((LANGUAGE_COOKIE, language, LANGUAGES), (THEME_COOKIE, theme, THEMES)):
        if value in known:
            answer.set_cookie(name, value, max_age=_YEAR_S, secure=True, httponly=True, samesite="lax")
    return answer
