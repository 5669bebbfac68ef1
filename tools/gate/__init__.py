"""What `.ci/run` and `make nightly` do beside running steps: second runs, the closing table, what was last seen when.

It needs a Python alone, none of our packages: it speaks where the set-up has failed too.
"""
