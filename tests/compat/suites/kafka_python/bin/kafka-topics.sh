#!/bin/sh
# kafka-topics.sh --list --bootstrap-server ADDRESS [--command-config FILE]
$BARNABAS_PROGRAM ${5:+--command-config "$5"} topic list --bootstrap-server "$3" | sed 1d | cut -f1
