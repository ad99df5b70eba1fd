#!/bin/sh
# Runs when the files of a package are in place: a .deb says "configure" and, at an upgrade, the version before; an .rpm
# says 1, or 2 at an upgrade.
set -eu
data=/var/lib/mailstead

case "$1:${2:-}" in
configure: | 1:) upgrade=no ;;
configure:* | 2:) upgrade=yes ;;
*) exit 0 ;;
esac

if ! id mailstead >/dev/null 2>&1; then
	if [ "$1" = configure ]; then
		adduser --quiet --system --group --no-create-home --home "$data" mailstead
	else
		useradd --system --user-group --no-create-home --home-dir "$data" --shell /usr/sbin/nologin mailstead
	fi
fi
[ -d "$data" ] || install -d -m 0700 -o mailstead -g mailstead "$data"

systemd=no
if [ -d /run/systemd/system ]; then
	systemd=yes
	systemctl daemon-reload
fi

if [ $upgrade = no ]; then
	echo "mailstead: /usr/share/doc/mailstead/docs/install.md says how to set this host up."
	exit 0
fi
[ -S "$data/mailstead.sock" ] || exit 0 # no server runs

echo "mailstead: this version rehearses the upgrade on a copy of the store, while the version before serves."
if ! mailstead rehearse --data "$data"; then
	cat >&2 <<-END
		mailstead: the rehearsal did not pass, so the version before serves on, until it is stopped. Mend what the lines
		above say. Then run "mailstead rehearse --data $data", and restart the server.
	END
	exit 1
fi
if [ $systemd = no ] || ! systemctl --quiet is-active mailstead.service; then
	echo "mailstead: restart the server to use this version. It will be away for about as long as the rehearsal took."
	exit 0
fi
echo "mailstead: the server is restarted, and will be away for about as long as the rehearsal took."
began=$(date +%s)
systemctl restart mailstead.service
echo "mailstead: this version serves. The server was away for $(($(date +%s) - began)) s."
if systemctl --quiet is-active mailstead.socket; then
	echo "mailstead: its ports stayed open: who connected meanwhile has waited."
fi
