"""kafka-python's tests are a package, which their sdist leaves out."""
