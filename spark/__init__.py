"""Topics and raw segments as Spark data frames, a sink, and jobs: `format("barnabas")`, `format("barnabas-log")`."""
