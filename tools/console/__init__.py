"""The console: a web page for any Kafka cluster, with the clients of this package.

`app.py` has the routes, `guard.py` the checks of requests; `server.py` is the process around them. Data that only a
Barnabas broker has are in `own_broker.py`. The page is in `static/`, without a build step.
"""
