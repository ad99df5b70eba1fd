package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
)

// A sender sends a request to the running server or an opened installation, and returns the
// response.
type sender func(*http.Request) (*http.Response, error)

// send sends a request to the running server. If none runs, it opens the installation for this
// request.
func (e *env) send(r *http.Request) (*http.Response, error) {
	resp, err := overSocket(e.socket(), r)
	if err == nil {
		return resp, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !isRefused(err) {
		return nil, err
	}
	s, err := e.offlineSettings()
	if err != nil {
		return nil, err
	}
	err = e.Open(e.dir, s, false, func(o *operator.Operator) error {
		o.Service.Health.Host = new(health.Host)
		resp = handlers.Do(o.Handler(handlers.New(o.Service)), r)
		return nil
	})
	if errors.Is(err, store.ErrInUse) {
		return nil, fmt.Errorf("a server uses %s, but its socket does not answer: %w", e.dir, err)
	}
	return resp, err
}

// errNoServer is returned by sendOverSocket if no server runs.
var errNoServer = errors.New("no server runs")

// sendOverSocket sends a request to the running server.
func (e *env) sendOverSocket(r *http.Request) (*http.Response, error) {
	resp, err := overSocket(e.socket(), r)
	if errors.Is(err, os.ErrNotExist) || isRefused(err) {
		return nil, fmt.Errorf("%w on %s: start it first", errNoServer, e.dir)
	}
	return resp, err
}

// withServer calls do with a sender: over the socket of the running server, or else to an
// installation that stays open during do.
func (e *env) withServer(ctx context.Context, do func(send sender) error) error {
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := overSocket(e.socket(), probe)
	if err == nil {
		resp.Body.Close()
		return do(func(r *http.Request) (*http.Response, error) { return overSocket(e.socket(), r) })
	}
	if !errors.Is(err, os.ErrNotExist) && !isRefused(err) {
		return err
	}
	s, err := e.offlineSettings()
	if err != nil {
		return err
	}
	return e.Open(e.dir, s, false, func(o *operator.Operator) error {
		h := o.Handler(handlers.New(o.Service))
		return do(func(r *http.Request) (*http.Response, error) { return handlers.Do(h, r), nil })
	})
}

func (e *env) socket() string { return filepath.Join(e.dir, operator.SocketName) }

func overSocket(path string, r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // the body can be sent again
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

// isRefused reports whether err means that no server listens on the socket, which is a leftover.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// ask sends a command with its arguments as JSON and decodes the response into out.
func (e *env) ask(ctx context.Context, path string, in, out any) error {
	return askThrough(ctx, e.send, path, in, out)
}

// askServer is ask for commands that need a running server.
func (e *env) askServer(ctx context.Context, path string, in, out any) error {
	return askThrough(ctx, e.sendOverSocket, path, in, out)
}

func askThrough(ctx context.Context, send sender, path string, in, out any) error {
	answer, err := post(ctx, send, path, in)
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

// post sends a command with its arguments as JSON and returns the response's body. If the server
// refuses the command, the error is the server's message for people.
func post(ctx context.Context, send sender, path string, in any) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := send(r)
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
