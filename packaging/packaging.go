// Package packaging has the systemd unit that runs the program as a service, and the scripts with
// which shells complete its commands. The folder also has the sources of .deb and .rpm packages:
// nfpm.yaml, the manual pages, the scripts that packages run, and the command release.
package packaging

import (
	_ "embed"
	"strings"
)

// Paths and user in the embedded unit file.
const (
	DataDir = "/var/lib/mailstead" // the data directory
	Binary  = "/usr/bin/mailstead" // the program
	User    = "mailstead"          // the user that runs the service
)

//go:embed mailstead.service
var embeddedUnit string

var (
	//go:embed completion/bash.sh
	bashCompletion string
	//go:embed completion/zsh.sh
	zshCompletion string
	//go:embed completion/fish.fish
	fishCompletion string
)

// Completion returns the script with which a shell ("bash", "zsh" or "fish") completes commands of
// the program: it asks the program what may follow. It returns "" for other shells.
func Completion(shell string) string {
	return map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[shell]
}

// Unit returns the text of a systemd unit that runs the program binary with a data directory, as
// User. Both paths must be absolute.
func Unit(dataDir, binary string) string {
	var out strings.Builder
	for line := range strings.Lines(embeddedUnit) {
		switch {
		case strings.HasPrefix(line, "StateDirectory") && dataDir != DataDir: // StateDirectory can only be below /var/lib
			continue
		case strings.HasPrefix(line, "ExecStart="):
			escape := strings.NewReplacer("$", "$$") // systemd must not expand variables
			line = strings.Replace(line, Binary, escape.Replace(quote(binary)), 1)
			line = strings.Replace(line, DataDir, escape.Replace(quote(dataDir)), 1)
		case strings.HasPrefix(line, "AssertPathExists="): // this path needs no quotes
			line = strings.Replace(line, DataDir, strings.ReplaceAll(dataDir, "%", "%%"), 1)
		case strings.HasPrefix(line, "ReadWritePaths="):
			line = strings.Replace(line, DataDir, quote(dataDir), 1)
		case strings.HasPrefix(line, "PrivateTmp=") && (isInTemp(dataDir) || isInTemp(binary)):
			line = "PrivateTmp=no\n" // a private /tmp would hide the path
		case strings.HasPrefix(line, "ProtectHome=") && (isInHome(dataDir) || isInHome(binary)):
			line = "ProtectHome=read-only\n" // ReadWritePaths makes the data directory writable
		}
		out.WriteString(line)
	}
	return out.String()
}

func isInHome(path string) bool {
	return strings.HasPrefix(path, "/home/") || strings.HasPrefix(path, "/root/")
}

func isInTemp(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/")
}

// quote quotes a path, if needed, so that it is a single word in a unit file.
func quote(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if !strings.ContainsAny(path, " \t\"'\\;") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
