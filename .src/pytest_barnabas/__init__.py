"""The plugin that pytest loads: the fixtures of `barnabas.testing.pytest_plugin`.

pytest rewrites the assertions of the whole package that owns a plugin. A package apart from `barnabas` spares every run
of pytest the compilation of the broker, which took half of the collection of Barnabas's own tests.
"""

pytest_plugins = ["barnabas.testing.pytest_plugin"]
