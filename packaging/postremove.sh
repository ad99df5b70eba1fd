#!/bin/sh
# Runs when the files of a package are gone: a .deb says "remove" or "purge", an .rpm 0.
set -eu
case "$1" in
remove | purge | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ -d /var/lib/mailstead ]; then
	echo "mailstead: mail, keys and settings stay in /var/lib/mailstead. Delete that directory when nobody needs them."
fi
