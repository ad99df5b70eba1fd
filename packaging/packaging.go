// Package packaging has what systems need to run the program as a service. It does not know what
// the program does. The folder also has what packages are made from: nfpm.yaml, the scripts that
// they run, and the command release.
package packaging

import (
	_ "embed"
	"strings"
)

// The paths and the user in the unit's file.
const (
	DataDir = "/var/lib/mailstead"
	Binary  = "/usr/bin/mailstead"
	User    = "mailstead"
)

//go:embed mailstead.service
var unit string

// Unit gives the text of a systemd service that runs the binary on a data directory as the user
// mailstead. Both are absolute paths.
func Unit(dataDir, binary string) string {
	var out strings.Builder
	for line := range strings.Lines(unit) {
		switch {
		case strings.HasPrefix(line, "StateDirectory") && dataDir != DataDir: // they name a directory below /var/lib
			continue
		case strings.HasPrefix(line, "ExecStart="):
			escape := strings.NewReplacer("$", "$$") // no variables
			line = strings.Replace(line, Binary, escape.Replace(quote(binary)), 1)
			line = strings.Replace(line, DataDir, escape.Replace(quote(dataDir)), 1)
		case strings.HasPrefix(line, "AssertPathExists="): // the path is the rest of the line
			line = strings.Replace(line, DataDir, strings.ReplaceAll(dataDir, "%", "%%"), 1)
		case strings.HasPrefix(line, "ReadWritePaths="):
			line = strings.Replace(line, DataDir, quote(dataDir), 1)
		case strings.HasPrefix(line, "PrivateTmp=") && (inTemp(dataDir) || inTemp(binary)):
			line = "PrivateTmp=no\n" // which would hide it
		case strings.HasPrefix(line, "ProtectHome=") && (inHome(dataDir) || inHome(binary)):
			line = "ProtectHome=read-only\n" // but for ReadWritePaths
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

// quote writes a path as one word of a unit file.
func quote(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if !strings.ContainsAny(path, " \t\"'\\;") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
