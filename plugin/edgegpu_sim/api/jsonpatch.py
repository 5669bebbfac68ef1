"""JSON patches (RFC 6902) as far as our programs send them: add, remove, replace, test on objects."""

import copy

from edgegpu_sim.api.errors import ApiError
from edgegpu_sim.api.objects import Json


def patched(item: Json, steps: list[Json]) -> Json:
    """Return an object with every step done; it is not changed itself.

    Raises:
        ApiError: 422, a step does not fit: then none is done.
    """
    result = copy.deepcopy(item)
    for step in steps:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in str(step["path"]).split("/")[1:])
        place = result
        for part in way:
            place = place.get(part, {}) if isinstance(place, dict) else {}
        if step["op"] != "add" and last not in place:
            raise _unfit(step, "it is not there")
        match step["op"]:
            case "add" | "replace":
                place[last] = step["value"]
            case "remove":
                del place[last]
            case "test" if place[last] == step["value"]:
                continue
            case _:
                raise _unfit(step, "it is otherwise")
    return result


def _unfit(step: Json, why: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request: {step['op']} {step['path']}: {why}")
