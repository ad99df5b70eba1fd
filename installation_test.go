package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
)

// loaded returns the settings of a file.
func loaded(t *testing.T, file string) (s *config.Settings) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(c *cli.Context) (err error) {
		s, err = config.Load(c)
		return err
	}
	app := &cli.App{Flags: append(config.Flags(), &cli.StringFlag{Name: "data"}), Action: load}
	if err := app.Run([]string{"mailstead", "--data", dir}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDANEBelievesOnlyTrustedResolvers: one on this machine, or one that the operator vouches for.
func TestDANEBelievesOnlyTrustedResolvers(t *testing.T) {
	for file, want := range map[string]bool{
		"resolver = '127.0.0.53:53'": true, "resolver = '[::1]:53'": true, "resolver = '192.0.2.53:53'": false, "": false,
		"resolver = '192.0.2.53:53'\n[dns]\ntrust_resolver = true": true,
	} {
		if r, err := newDANE(loaded(t, file)); err != nil || (r != nil) != want {
			t.Errorf("%q: %v, %v", file, r, err)
		}
	}
}
