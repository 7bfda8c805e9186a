# Succeeds if the broker serves clients: its local port then responds to /health with 200.
exec 3<>/dev/tcp/127.0.0.1/"${1:-${BARNABAS_CONFIG_HEALTH_PORT:-9644}}" || exit 1
printf 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
read -r -t 2 _ status _ <&3
[ "$status" = 200 ]
