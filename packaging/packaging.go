// Package packaging has what is needed to run the program as a system service. The folder also has
// the sources of packages: nfpm.yaml, the scripts that packages run, and the command release.
package packaging

import (
	_ "embed"
	"strings"
)

// The paths and the user in the embedded unit file.
const (
	DataDir = "/var/lib/mailstead"
	Binary  = "/usr/bin/mailstead"
	User    = "mailstead"
)

//go:embed mailstead.service
var unit string

// Unit returns the text of a systemd service that runs the binary with a data directory as the user
// mailstead. Both paths must be absolute.
func Unit(dataDir, binary string) string {
	var out strings.Builder
	for line := range strings.Lines(unit) {
		switch {
		case strings.HasPrefix(line, "StateDirectory") && dataDir != DataDir: // these lines name a directory below /var/lib
			continue
		case strings.HasPrefix(line, "ExecStart="):
			escape := strings.NewReplacer("$", "$$") // no expansion of variables
			line = strings.Replace(line, Binary, escape.Replace(quote(binary)), 1)
			line = strings.Replace(line, DataDir, escape.Replace(quote(dataDir)), 1)
		case strings.HasPrefix(line, "AssertPathExists="): // the path is the whole rest of the line
			line = strings.Replace(line, DataDir, strings.ReplaceAll(dataDir, "%", "%%"), 1)
		case strings.HasPrefix(line, "ReadWritePaths="):
			line = strings.Replace(line, DataDir, quote(dataDir), 1)
		case strings.HasPrefix(line, "PrivateTmp=") && (inTemp(dataDir) || inTemp(binary)):
			line = "PrivateTmp=no\n" // a private /tmp would hide the path
		case strings.HasPrefix(line, "ProtectHome=") && (inHome(dataDir) || inHome(binary)):
			line = "ProtectHome=read-only\n" // ReadWritePaths makes the data directory writable
		}
		out.WriteString(line)
	}
	return out.String()
}

func inHome(path string) bool {
	return strings.HasPrefix(path, "/home/") || strings.HasPrefix(path, "/root/")
}

func inTemp(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/")
}

// quote writes a path as a single word of a unit file.
func quote(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if !strings.ContainsAny(path, " \t\"'\\;") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
