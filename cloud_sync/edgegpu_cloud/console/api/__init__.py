"""The REST API below `/api/v1`: the fleet, app limits, commands and enrolment for programs."""
