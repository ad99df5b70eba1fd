// Command mailstead is self-hosted email infrastructure in one binary: SMTP, IMAP, DNS, an HTTP API
// and webhooks over one data directory.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/mailstead/mailstead/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := cli.Program{Version: version, Serve: serve, Open: withInstallation}
	os.Exit(program.Main(ctx, os.Args, os.Stdout, os.Stderr))
}
