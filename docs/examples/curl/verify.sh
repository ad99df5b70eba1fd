#!/bin/sh
# Ends well if a delivery is genuine: X-Service-Timestamp and X-Service-Signature as arguments, the body, byte for byte
# as it came, on standard input, the secret in MAILSTEAD_SECRET. Needs openssl.
set -eu
case $1 in '' | *[!0-9]*) exit 1 ;; esac
age=$(($(date +%s) - $1))
[ "${age#-}" -le 300 ] || exit 1
mac=$({ printf '%s.' "$1" && cat; } | openssl dgst -sha256 -hmac "$MAILSTEAD_SECRET" -r | cut -d ' ' -f 1)
case ",$2," in *",v1=$mac,"*) ;; *) exit 1 ;; esac
