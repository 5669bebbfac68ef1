"""What each role may do, and that a scope narrows it."""

import pytest

from edgegpu_cloud.errors import CloudError, ForbiddenError
from edgegpu_cloud.fleet.access import LEAST, OF_ALL_BOXES, Access, Permission, both_scopes, read_scope
from edgegpu_cloud.store.people.records import Role

MAY = {
    Role.VIEWER: {Permission.VIEW, Permission.METRICS},
    Role.OPERATOR: {Permission.VIEW, Permission.METRICS, Permission.CHANGE, Permission.ENROL},
    Role.ADMIN: set(Permission),
}
OF_THE_WHOLE = {Permission.PEOPLE, Permission.METRICS, Permission.SETTINGS}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("permission", Permission)
@pytest.mark.parametrize("scope", ["", "site=hall"])
def test_roles_and_permissions(role: Role, permission: Permission, scope: str) -> None:
    access = Access("anna", role, read_scope(scope))
    expected = permission in MAY[role] and not (scope and permission in OF_THE_WHOLE)
    assert access.may(permission) is expected
    if expected:
        access.require(permission)
    else:
        with pytest.raises(ForbiddenError, match=r"^cannot .*: your (role is|scope is a part)") as caught:
            access.require(permission)
        assert caught.value.remedy.startswith("ask an admin")


def test_every_permission_has_its_least_role() -> None:
    assert set(LEAST) == set(Permission)
    assert set(LEAST) >= OF_ALL_BOXES == OF_THE_WHOLE


def test_a_higher_role_may_all_that_a_lower_one_may() -> None:
    for lower, higher in ((Role.VIEWER, Role.OPERATOR), (Role.OPERATOR, Role.ADMIN)):
        assert MAY[lower] < MAY[higher]


def test_both_scopes_are_what_each_matches() -> None:
    both = read_scope(both_scopes("site in (hall,yard)", " rack!=3 "))
    assert both.matches({"site": "yard"})
    assert not both.matches({"site": "yard", "rack": "3"})
    assert not both.matches({"rack": "4"})
    assert read_scope(both_scopes("", " ")).matches({})
    with pytest.raises(CloudError):
        read_scope("site=hall,")
