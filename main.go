// Command mailstead is self-hosted email infrastructure in one binary: servers for SMTP, IMAP, DNS
// and an HTTP API, webhooks, and a dashboard. It keeps everything in one data directory.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/mailstead/mailstead/cli"
)

// version is the version of the program. The linker sets it.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := cli.Program{Version: version, Serve: serve, Open: withInstallation}
	os.Exit(program.Main(ctx, os.Args, os.Stdout, os.Stderr))
}
