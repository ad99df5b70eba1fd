package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
)

// local sends a request to the running server, or to an installation opened just for it.
func local(c *cli.Context, r *http.Request) (*http.Response, error) {
	dir := c.String("data")
	resp, err := overSocket(filepath.Join(dir, operator.SocketName), r)
	if err == nil {
		return resp, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !isRefused(err) {
		return nil, err
	}
	s, err := offlineSettings(c)
	if err != nil {
		return nil, err
	}
	err = withInstallation(dir, s, false, func(o *operator.Operator) error {
		o.Service.Health.Host = new(health.Host)
		resp = handlers.Do(o.Handler(handlers.New(o.Service)), r)
		return nil
	})
	if errors.Is(err, store.ErrInUse) {
		return nil, fmt.Errorf("a server uses %s, but its socket does not answer: %w", dir, err)
	}
	return resp, err
}

// offlineSettings are the settings for commands that open the store themselves.
func offlineSettings(c *cli.Context) (*config.Settings, error) {
	s, err := config.Load(c)
	if err != nil {
		return nil, err
	}
	if len(s.PublicIP) == 0 && !s.Sandbox() {
		s.PublicIP = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} // nothing listens, so nothing is published
	}
	return s, nil
}

func overSocket(path string, r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // so that it can be sent again
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", "mailstead"
	t := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true,
	}
	resp, err := t.RoundTrip(out)
	if err != nil && r.Context().Err() == nil {
		return nil, fmt.Errorf("the server on %s ended before it answered. What was asked for may have been done: %w", filepath.Dir(path), err)
	}
	return resp, err
}

// runLocal sends a command with its arguments as JSON and decodes what comes back.
func runLocal(c *cli.Context, path string, in, out any) error {
	answer, err := askThrough(c, path, in, local)
	return decodeAnswer(answer, err, out)
}

// errNoServer is returned by askServer where none runs.
var errNoServer = errors.New("no server runs")

// runOverSocket is runLocal for what only a running server does.
func runOverSocket(c *cli.Context, path string, in, out any) error {
	answer, err := askServer(c, path, in)
	return decodeAnswer(answer, err, out)
}

func decodeAnswer(answer io.ReadCloser, err error, out any) error {
	if err != nil {
		return err
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// askServer sends a command to the running server and gives its answer.
func askServer(c *cli.Context, path string, in any) (io.ReadCloser, error) {
	return askThrough(c, path, in, func(c *cli.Context, r *http.Request) (*http.Response, error) {
		resp, err := overSocket(filepath.Join(c.String("data"), operator.SocketName), r)
		if errors.Is(err, os.ErrNotExist) || isRefused(err) {
			return nil, fmt.Errorf("%w on %s: start it first", errNoServer, c.String("data"))
		}
		return resp, err
	})
}

func askThrough(c *cli.Context, path string, in any, send func(*cli.Context, *http.Request) (*http.Response, error)) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(c.Context, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := send(c, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return nil, errors.New(strings.TrimSpace(string(text)))
}
