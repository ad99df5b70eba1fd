package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/dnsprov/registrar"
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

// TestRegistrarsFollowTheSettings: a client stays while its settings stay, and changes with them.
func TestRegistrarsFollowTheSettings(t *testing.T) {
	const both = "[registrar.namecom]\nusername = 'us'\ntoken = '%s'\n[registrar.cloudflare]\naccount_id = 'us'\ntoken = 'cf'\n"
	p := &shops{client: http.DefaultClient, log: slog.New(slog.DiscardHandler)}
	open := func(file string) []registrar.Registrar {
		t.Helper()
		list, err := p.open(loaded(t, file))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	first, again, other := open(fmt.Sprintf(both, "one")), open(fmt.Sprintf(both, "one")), open(fmt.Sprintf(both, "two"))
	if len(first) != 2 || first[0].Name() != "namecom" || first[1].Name() != "cloudflare" {
		t.Fatalf("%v", first)
	}
	if first[0] != again[0] || first[1] != again[1] || first[1] != other[1] {
		t.Error("a client is made anew though its settings stay")
	}
	if first[0] == other[0] {
		t.Error("a client has the token of before")
	}
	if list := open(""); len(list) != 0 {
		t.Errorf("without settings: %v", list)
	}
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
