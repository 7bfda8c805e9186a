"""The console: one page in a browser, for any Kafka cluster, by this package's own clients.

`app.py` says what is answered where, `guard.py` who is answered at all; `server.py` is the process around them. What
only a broker of ours can tell comes through `own_broker.py`. The page is in `static/`, as it is written.
"""
