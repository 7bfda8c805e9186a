"""Where pytest looks for the fixtures of an installation that is older than the test kit's room."""

pytest_plugins = ["barnabas.testing.pytest_plugin"]
