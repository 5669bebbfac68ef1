"""The steps behind `install`, `uninstall` and `agent enrol`: the installer's console, the options, the enrolment."""
